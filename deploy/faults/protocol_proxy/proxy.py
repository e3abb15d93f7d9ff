"""The public interface of the proxy: a thread with its own event loop.

    with ProtocolProxy("127.0.0.1:9092", [listener]) as proxy:
        address = proxy.address_for("instance-1")  # its bootstrap.servers
        rule = Rule(Match(apis={"EndTxn"}, instance="instance-1"), LoseAnswer())
        proxy.add(rule)
        ...
        proxy.wait_until_made(rule, 30)

Clients of any Kafka work with the proxy unchanged. The proxy replaces the addresses of brokers in
answers by its own listeners on loopback, one for each broker and instance. A restarted broker keeps
its listener. With `tls` the proxy speaks TLS on both sides, and logins pass through. Without `tls`,
a TLS client is refused, with the reason in the error (`ConnectionClosed.reason`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ....client.admin import Admin
from ....client.cluster_view import parse_bootstrap
from ....client.loop_thread import LoopThread
from ....wire.errors import KafkaError
from ...cluster.failure import Failure
from ...cluster.silence import tell_silence
from .brokers import BOOTSTRAP, LOOPBACK
from .events import Connection
from .hub import Hub, Listener
from .rules import Rule
from .two_ends import ProxyTls

START_TIMEOUT_MS = 10_000
CALL_TIMEOUT_S = 10.0


class ProtocolProxy:
    """A proxy of a cluster, whose methods any thread may call.

    Listeners, `where` functions and awaited `act` functions may only call `add`, `remove` and
    `made`.
    """

    def __init__(
        self,
        cluster: str | Mapping[str, Any],
        listeners: Iterable[Listener] = (),
        *,
        transaction_timeout_ms: int = 0,
        tls: ProxyTls | None = None,
    ) -> None:
        """Start the proxy. Raises Failure if the cluster cannot be reached, or needs `tls`.

        cluster: a bootstrap line, or the configuration with which the proxy itself requests the
        brokers. listeners: each gets every event, in the proxy's loop. transaction_timeout_ms: the
        proxy lowers transaction timeouts in InitProducerId to this value, and session timeouts in
        JoinGroup to 6 s. With 0 no timeout is changed.
        """
        try:
            line = cluster if isinstance(cluster, str) else cluster["bootstrap.servers"]
            known = parse_bootstrap(line)
        except ValueError as error:
            raise Failure(f"{error}.", exit_code=2) from None
        self._hub = Hub(known, listeners, transaction_timeout_ms, tls)
        self._thread = LoopThread("protocol proxy")
        try:
            self._thread.run(self._find_brokers(cluster))
        except KafkaError as error:
            self._thread.close()
            raise Failure(f"There is no proxy without its cluster: {error}") from error
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:  # else the first error counts
                raise

    def close(self) -> None:
        """Close all connections, and end the proxy's thread.

        Raises the first error that a listener or a rule's `act` or `where` has raised. A second
        call does nothing.
        """
        if self._thread.loop.is_closed():
            return
        try:
            self._thread.run(self._hub.close(), CALL_TIMEOUT_S)
        finally:
            self._thread.close()
        if self._hub.problem is not None:
            raise self._hub.problem

    def address_for(self, instance: str = "") -> str:
        """Return HOST:PORT for the clients of an instance of an application.

        Events of these clients carry the instance's name. The same name always gets the same
        address.
        """

        async def port() -> int:
            return self._hub.ports.port_of(instance, BOOTSTRAP)

        return f"{LOOPBACK}:{self._thread.run(port(), CALL_TIMEOUT_S)}"

    def add(self, rule: Rule) -> None:
        """Add a rule, after the rules that were added before."""
        self._hub.add(rule)

    def remove(self, rule: Rule) -> None:
        """Remove a rule.

        A removed rule acts no more, but frames that it holds or delays continue as planned.
        """
        self._hub.remove(rule)

    def made(self, rule: Rule) -> int:
        """Return how often the rule has acted, 0 for a removed rule."""
        return self._hub.made(rule)

    def wait_until_made(self, rule: Rule, timeout_s: float, times: int = 1) -> bool:
        """Wait until the rule has acted `times` times, and return True.

        Returns False at the timeout, or when the proxy is closed.
        """
        return self._hub.wait(lambda: self._hub.made(rule) >= times, timeout_s)

    def disconnect(self, instance: str | None = None, broker_id: int | None = None) -> int:
        """Close the open connections of an instance, or to a broker, by default all.

        Returns the number of closed connections. Clients may connect again.
        """

        async def cut() -> int:
            meant = [
                one
                for one in tuple(self._hub.connections.values())
                if instance in (None, one.info.instance) and broker_id in (None, one.info.broker_id)
            ]
            for one in meant:
                one.close("it was cut", is_abrupt=True)
            return len(meant)

        return self._thread.run(cut(), CALL_TIMEOUT_S)

    def present(self, *, is_expired: bool) -> None:
        """Present an expired certificate to new connections, or the valid one again.

        Open connections are not affected. The proxy must have TLS.
        """

        async def load() -> None:
            assert self._hub.tls is not None
            self._hub.tls.present(is_expired)

        self._thread.run(load(), CALL_TIMEOUT_S)

    def shorten_logins(self, lifetime_ms: int) -> None:
        """Let clients that log in from now on authenticate again after `lifetime_ms` (KIP-368).

        With 0 the lifetimes of the brokers reach clients unchanged, from the next login on.
        """
        self._hub.login_lifetime_ms = lifetime_ms

    def failed_handshakes(self, instance: str) -> int:
        """Return how many connections of an instance began a TLS handshake and did not finish it.

        The number includes handshakes in progress.
        """

        async def failed() -> int:
            return self._hub.accepted[instance] - self._hub.begun[instance]

        return self._thread.run(failed(), CALL_TIMEOUT_S)

    @property
    def connections(self) -> list[Connection]:
        """Return the open connections."""

        async def listed() -> list[Connection]:
            return [one.info for one in self._hub.connections.values()]

        return self._thread.run(listed(), CALL_TIMEOUT_S)

    @property
    def brokers(self) -> dict[int, str]:
        """Return HOST:PORT of the known brokers, as they advertise themselves, by their ids."""
        found = dict(self._hub.brokers.addresses)
        return {one: f"{host}:{port}" for one, (host, port) in sorted(found.items())}

    async def _find_brokers(self, cluster: str | Mapping[str, Any]) -> None:
        async with Admin(cluster, timeout_ms=START_TIMEOUT_MS) as admin:
            tell_silence(admin)
            for broker in (await admin.describe_cluster()).brokers:
                if broker.host and not broker.is_fenced:
                    self._hub.brokers.addresses[broker.node_id] = (broker.host, broker.port)
