"""The proxy as its users have it: a thread with an event loop of its own.

    with ProtocolProxy("127.0.0.1:9092", [listener]) as proxy:
        address = proxy.address_for("instance-1")  # its bootstrap.servers
        rule = Rule(Match(apis={"EndTxn"}, instance="instance-1"), LoseAnswer())
        proxy.add(rule)
        ...
        proxy.wait_until_made(rule, 30)

Any client of any Kafka works through it unchanged: the addresses of brokers in answers become those
of listeners on loopback, one for each broker and instance; a broker that dies and comes back keeps
its own. Plain text only: TLS is refused in words (`ConnectionClosed.reason`).
"""

from collections.abc import Callable, Iterable
from typing import Self, TypeVar

from .events import Connection, Event
from .rules import Rule

START_TIMEOUT_S = 30.0
Result = TypeVar("Result")
Listener = Callable[[Event], None]


class ProtocolProxy:
    """A proxy of the cluster behind `bootstrap`. Methods may be called from any thread, but not
    from a listener: there, only `add` and `remove`."""

    def __init__(
        self,
        bootstrap: str,
        listeners: Iterable[Listener] = (),
        *,
        lowers_timeouts: bool = False,
    ) -> None:
        """Failure in words when the cluster cannot be reached, or speaks TLS.

        listeners: each gets every event, in the proxy's loop. lowers_timeouts: session timeouts in
        JoinGroup are lowered to 6 s, transaction timeouts in InitProducerId to 10 s.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections, and the thread. Raises what a listener or a rule's `act` or `where`
        has raised, the first of it."""

    def address_for(self, instance: str = "") -> str:
        """HOST:PORT for the clients of an instance of an application; their events carry its name.
        The same name always gets the same address."""
        raise NotImplementedError

    def add(self, rule: Rule) -> None:
        """Rules are asked in the order in which they were added."""

    def remove(self, rule: Rule) -> None:
        """It acts no more; what it holds or delays goes on as it was to."""

    def made(self, rule: Rule) -> int:
        """How often the rule has acted; 0 for one that was removed."""
        raise NotImplementedError

    def wait_until_made(self, rule: Rule, timeout_s: float, times: int = 1) -> bool:
        """Whether the rule has acted so often before the timeout."""
        raise NotImplementedError

    def disconnect(self, instance: str | None = None, broker_id: int | None = None) -> int:
        """Cut the connections there are, at once; clients may connect anew. Returns how many."""
        raise NotImplementedError

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        raise NotImplementedError

    @property
    def brokers(self) -> dict[int, str]:
        """HOST:PORT of the brokers known, as they advertise themselves, by their ids."""
        raise NotImplementedError
