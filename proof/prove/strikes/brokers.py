"""Faults of the brokers of our own cluster."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from ....deploy.cluster.failure import Failure
from ....deploy.cluster.local_cluster import Cluster
from ....deploy.faults.protocol_proxy.events import Request
from ....deploy.faults.protocol_proxy.rules import Disconnect, Ending
from ..plan import AimedFault

DOWN_S, BEHIND_MS = 1.0, 400


class BrokerStrikes:
    """Injects faults of brokers. `cluster` is None for a cluster that is not ours."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._down: int | None = None  # the broker that was killed last

    def kill(self, fault: AimedFault, request: Request) -> tuple[Ending, str]:
        """Send SIGKILL to the broker to which the held request was sent.

        Return a disconnect as the end of the held request, and a sentence about the fault.
        """
        broker = broker_of(request)
        assert self._cluster is not None
        self._cluster.kill(broker)
        self._down = broker
        role = fault.about if fault.about != "group" else "coordinator of the group"
        return Disconnect(), (
            f"kill -9 of broker {broker} ({role}) {fault.where} {request.api} of {request.instance}"
        )

    @contextmanager
    def followers_behind(self) -> Iterator[None]:
        """Delay all messages between brokers during the `with` block.

        A record is then on the leader before its followers get it.
        """
        assert self._cluster is not None
        for broker in self._cluster.node_ids:
            self._cluster.slow(broker, BEHIND_MS)
        try:
            yield
        finally:
            for broker in self._cluster.node_ids:
                if broker != self._down:
                    self._cluster.ask_node(broker, {"op": "heal"})

    def mend(self) -> None:
        """Start the killed broker again, so that every later fault begins with all brokers."""
        if self._cluster is not None and self._down is not None:
            time.sleep(DOWN_S)
            self._cluster.start(self._down)
            self._down = None
            self._cluster.wait_for_isr()


def broker_of(request: Request) -> int:
    """Return the broker to which the request is sent, or raise Failure if its id is unknown."""
    broker = request.connection.broker_id
    if broker is None:
        raise Failure(f"{request.api} went to a broker with an unknown id.")
    return broker
