"""The handling of an isolated leader, which gets no answers to its heartbeats.

Without the controller the leader cannot remove silent followers from the ISR, and cannot learn that
another broker has become the leader. Writes would wait for those followers until their clients time
out, after 30 s or more, although the cluster has a new leader after one session timeout. So a
partition with a silent in-sync follower accepts no more writes with acks=all, and its waiting
writes end. The broker closes the connections of these writes without an answer, because a client
that got NOT_LEADER_OR_FOLLOWER would ask this broker for the new leader. Apache Kafka lets the
writes wait.

Partitions whose in-sync followers still fetch continue without a controller, as in Kafka.
"""

import asyncio
import logging

from ...runtime.steps import StepCounter, Steps
from ...wire.errors import ErrorCode
from ..clock import until_tenth_s
from ..partitions.hosted_partition import HostedPartition
from ..partitions.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
LOOKS_PER_TIMEOUT = 4
PARTITIONS_A_STEP = 64  # some 0.3 ms


class IsolatedLeader:
    """The periodic search for partitions that cannot commit while their leader is isolated."""

    def __init__(self, replicas: ReplicaManager, *, session_timeout_ms: int) -> None:
        self._replicas = replicas
        self._session_timeout_ms = session_timeout_ms
        self._answered_ms = replicas.clock.monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        interval_s = self._session_timeout_ms / LOOKS_PER_TIMEOUT / 1000
        self._timer = loop.call_later(until_tenth_s(loop.time(), interval_s), self.start)
        self.look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_heartbeat_answered(self) -> None:
        self._answered_ms = self._replicas.clock.monotonic_ms()
        if self._replicas.stalled:
            self._replicas.note_stalled(frozenset())

    def look(self) -> None:
        """Begin to search for partitions with in-sync followers that have stopped fetching.

        The search runs in slices, since there may be thousands, and ends when the controller
        answers.
        """
        self._replicas.work.begin("isolated leader", self._looking())

    def _looking(self) -> Steps[None]:
        answered_ms = self._answered_ms
        now_ms, timeout_ms = self._replicas.clock.monotonic_ms(), self._session_timeout_ms
        if now_ms - answered_ms < timeout_ms:
            return
        counter, waiting = StepCounter(PARTITIONS_A_STEP), list[HostedPartition]()
        last_fetch_ms = self._replicas.peers.last_fetch_ms
        for partition in self._replicas:
            if partition.leader is not None and any(
                now_ms - last_fetch_ms.get(node, 0) >= timeout_ms
                for node in partition.leader.isr
                if node != partition.leader.node_id
            ):
                waiting.append(partition)
            if counter.ends_step():
                yield
                if self._answered_ms != answered_ms:
                    return
        stalled = frozenset(waiting)
        if new := stalled - self._replicas.stalled:
            logger.warning(
                "the controller does not answer, and in %d more partitions a follower in the ISR "
                "does not fetch: they accept no writes with acks=all",
                len(new),
            )
        self._replicas.note_stalled(stalled)
        for partition in waiting:
            self._replicas.release_waiters(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if counter.ends_step():
                yield
                if self._answered_ms != answered_ms:
                    return
