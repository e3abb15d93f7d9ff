"""The leader's answers to its followers, with the rules of `replication.replica_server`.

A follower's poll reports its positions, which may raise high watermarks and complete requests of
clients. After each poll, and whenever logs have grown, the polls that have news are answered. One
timer waits for the next poll to expire.
"""

from collections.abc import Iterable

from ...replication.messages import PeerMessage, decode_fetch_request, encode_fetch_response
from ...replication.peer.handlers import Buffer, Reply
from ...replication.peer.transport import PeerTransport
from ...replication.replica_server import ReplicaServer, ReplicationUpdates
from ...runtime.earliest_timer import EarliestTimer
from .hosted_partition import HostedPartition
from .ports import Followers
from .replica_manager import ReplicaManager
from .replication_throttle import ReplicationThrottle


class FollowerService(Followers):
    """The answers to replica fetches of other brokers."""

    def __init__(
        self,
        transport: PeerTransport,
        replicas: ReplicaManager,
        *,
        broker_epoch: int,
        response_bytes_max: int,
        throttle: ReplicationThrottle,
    ) -> None:
        self._replicas = replicas
        self._throttle = throttle
        self._clock = replicas.clock
        self._server = ReplicaServer(
            replicas.get_by_id,  # type: ignore[arg-type]
            replicas.peers,
            broker_epoch=broker_epoch,
            response_bytes_max=response_bytes_max,
            throttle=throttle,
        )
        self._released_timer = EarliestTimer(self._clock.monotonic_ms, self._release)
        self._timer = EarliestTimer(self._clock.monotonic_ms, self._expire)
        replicas.followers = self
        transport.on_request(PeerMessage.REPLICA_FETCH, self._fetch, bulk=True)
        transport.on_peer_change(self._peer_changed)

    def stop(self) -> None:
        """Stop answering expired polls and throttled partitions.

        The waiting polls end with the transport.
        """
        self._timer.cancel()
        self._released_timer.cancel()

    def _fetch(self, follower: int, header: bytes, _: list[Buffer], reply: Reply) -> None:
        request = decode_fetch_request(header)
        now_ms = self._clock.monotonic_ms()
        updates = self._server.on_request(follower, request, reply, now_ms)
        if updates.high_watermarks or updates.may_join_isr:
            self._consequences(updates)
        self._respond(now_ms)

    def appended(self, partitions: Iterable[HostedPartition]) -> None:
        for partition in partitions:
            self._server.appended(partition.key)
        self._respond(self._clock.monotonic_ms())

    def offsets_moved(self, partition: HostedPartition) -> None:
        self._server.watermarks_moved(partition.key)

    def role_changed(self, partition: HostedPartition) -> None:
        now_ms = self._clock.monotonic_ms()
        self._consequences(self._server.partition_changed(partition.key, now_ms))
        self._respond(now_ms)

    def _peer_changed(self, peer: int, is_up: bool) -> None:
        if not is_up:
            self._server.forget_follower(peer)
            self._respond(self._clock.monotonic_ms())

    def _consequences(self, updates: ReplicationUpdates) -> None:
        for key, offset in updates.high_watermarks:
            partition = self._replicas.get_by_id(key)
            if partition is not None and partition.leader is not None:
                self._replicas.raise_high_watermark(partition, offset)
        for key in updates.may_join_isr:
            partition = self._replicas.get_by_id(key)
            if partition is not None:
                self._replicas.in_sync.isr_may_change(partition)

    def _respond(self, now_ms: int) -> None:
        for _, reply, response in self._server.take_responses(now_ms):
            assert callable(reply)
            reply(*encode_fetch_response(response))
        if self._throttle.held:
            self._released_timer.set(now_ms + max(1, self._throttle.pause_ms()))
        deadline_ms = self._server.next_deadline_ms
        if deadline_ms is not None and deadline_ms < self._timer.at_ms:
            self._timer.set(deadline_ms)

    def _release(self) -> None:
        """Answer followers for the partitions that the replication throttle has held back.

        Partitions that exceed the rate again are held back again.
        """
        for key in self._throttle.released():
            self._server.appended(key)
        self._respond(self._clock.monotonic_ms())

    def _expire(self) -> None:
        self._respond(self._clock.monotonic_ms())
