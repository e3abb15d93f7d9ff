"""The brokers of a cluster, and the proxy's listener for each instance and broker.

This is a core without I/O. A broker is known by its id, so a restarted broker keeps its port, even
with a new address. A broker gets a port when an answer first names it.
"""

from collections.abc import Callable, Iterable

LISTENERS_MAX = 2_000
LOOPBACK = "127.0.0.1"
Address = tuple[str, int]
BOOTSTRAP = None  # instead of a broker's id, for any broker


class Brokers:
    """The advertised address of each known broker, and the bootstrap addresses."""

    def __init__(self, bootstrap: Iterable[Address]) -> None:
        self.addresses: dict[int, Address] = {}
        self._bootstrap = list(bootstrap)
        self._turn = 0

    def targets(self, broker_id: int | None) -> list[Address]:
        """Return a broker's address in a list, or for None all known addresses in the order to try.

        For None, each call begins with another address.
        """
        if broker_id is not None:
            return [self.addresses[broker_id]]
        known = list(dict.fromkeys((*self.addresses.values(), *self._bootstrap)))
        self._turn += 1
        first = self._turn % len(known)
        return known[first:] + known[:first]

    def id_of(self, address: Address) -> int | None:
        """Return the id of the broker at an address, or None if unknown."""
        return next((one for one, where in self.addresses.items() if where == address), None)


class Ports:
    """The proxy's ports, one for each instance and broker, and one for an instance's bootstrap."""

    def __init__(self, brokers: Brokers, listen: Callable[[str, int | None], int]) -> None:
        """Create a table without ports.

        `listen(instance, broker id)` opens a listener and returns its port.
        """
        self._brokers = brokers
        self._listen = listen
        self._ports: dict[tuple[str, int | None], int] = {}

    def port_of(self, instance: str, broker_id: int | None) -> int:
        """Return the port of an instance for a broker, or for bootstrap if `broker_id` is None.

        A port never changes. Raises OverflowError when there are too many.
        """
        key = (instance, broker_id)
        if key not in self._ports:
            if len(self._ports) >= LISTENERS_MAX:
                raise OverflowError(f"a proxy has at most {LISTENERS_MAX} listeners")
            self._ports[key] = self._listen(instance, broker_id)
        return self._ports[key]

    def proxied(self, instance: str, broker_id: int, host: str, port: int) -> Address:
        """Record a broker's advertised address, and return the proxy's address to send instead."""
        self._brokers.addresses[broker_id] = (host, port)
        return LOOPBACK, self.port_of(instance, broker_id)
