"""A broker with logs that follows partitions. The test answers as their leaders."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.node.clock import SystemClock
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_fetchers import ReplicaFetchers
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.node.partitions.replication_throttle import ReplicationThrottle
from oncelog.replication.messages import (
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.records import Record, encode_batch

from .fake_broker import broker_config
from .hosted_logs import RecordedFailures, open_hosted

LEADER, LEADER_EPOCH = 2, 3


def batches(first: int, count: int = 1, *, epoch: int = LEADER_EPOCH, value: bytes = b"v") -> bytes:
    """Return batches of producer 7 with one record each, from offset `first` on."""
    return b"".join(
        encode_batch(
            [Record(offset, 1_700_000_000_000, b"k", value)],
            base_offset=offset, leader_epoch=epoch,
            producer_id=7, producer_epoch=0, base_sequence=offset,
        )
        for offset in range(first, first + count)
    )  # fmt: skip


class Poll(NamedTuple):
    peer: int
    request: ReplicaFetchRequest
    answered: Callable[[Any], None]

    def answer(self, slots: Iterable[SlotAnswer], session_id: int = 7) -> None:
        epoch = self.request.session_epoch
        response = ReplicaFetchResponse(session_id, epoch, broker_epoch=9, answers=list(slots))
        header, buffers = encode_fetch_response(response)
        self.answered((header, [memoryview(bytes(each)) for each in buffers]))

    def answer_all(self, **fields: Any) -> None:
        """Answer a replica fetch with the same fields for each added or moved partition."""
        asked = (*self.request.added, *self.request.moved)
        self.answer(slot_answer(each.slot, **fields) for each in asked)


def slot_answer(slot: int, **fields: Any) -> SlotAnswer:
    given: dict[str, Any] = {"high_watermark": 0, "log_start_offset": 0} | fields
    return SlotAnswer(slot, **given)


class Links:
    """The links to the leaders, which record all replica fetches."""

    def __init__(self) -> None:
        self.polls: list[Poll] = []

    def on_peer_change(self, callback: Any) -> None:
        pass

    def ask(self, peer: int, kind: int, payload: Any, *, answered: Any, **_: Any) -> None:
        self.polls.append(Poll(peer, decode_fetch_request(payload), answered))


class FollowingBroker:
    """A broker that only follows partitions. `clock_s` is the clock of its sliced work."""

    def __init__(
        self,
        directory: Path,
        *,
        clock_s: Callable[[], float] | None = None,
        **settings: str,
    ) -> None:
        self.directory = directory
        self.replicas = ReplicaManager(
            clock=SystemClock(),
            partition_exists=lambda topic, index: True,
            work=SlicedWork(clock_s) if clock_s else SlicedWork(),
        )
        self.failures = self.replicas.failed_logs = RecordedFailures()
        self.links = Links()
        config = broker_config(1, **settings)
        self.state = ClusterState()
        self.throttle = ReplicationThrottle(
            self.state, config, "follower", self.replicas.clock.monotonic_ms
        )
        self.fetchers = ReplicaFetchers(self.links, self.replicas, config, self.throttle)  # type: ignore[arg-type]

    @property
    def polls(self) -> list[Poll]:
        return self.links.polls

    def host(self, index: int = 0, **config: Any) -> HostedPartition:
        partition = open_hosted(self.directory, index, **config)
        self.replicas.add(partition)
        return partition

    def follow(
        self, partition: HostedPartition, leader: int = LEADER, epoch: int = LEADER_EPOCH
    ) -> None:
        partition.follow(PartitionRegistration((leader, 1), (leader, 1), leader, epoch))
        self.fetchers.follow(partition)

    def lose_session(self) -> None:
        """Drop the fetch session, so that the follower opens a new one immediately."""
        (fetcher,) = self.fetchers._fetchers.values()
        fetcher._session.reset()
        fetcher.resume()
