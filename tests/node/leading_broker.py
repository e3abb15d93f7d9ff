"""A broker that leads partitions with real logs. The test acts as coordinator and follower.

Node 1 leads `t-0`, `t-1` and so on. Node 2 follows, and the test sets its positions.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.transactions.messages import TransactionMarker, WriteMarkers
from oncelog.node.clock import Clock, SystemClock
from oncelog.node.groups.coordinator import OFFSETS_TOPIC
from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.node.transactions.marker_writer import MarkerWriter
from oncelog.node.transactions.verifier import Verified
from oncelog.runtime.turn_share import TurnShare
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.control_record import decode_marker
from oncelog.wire.messages import fetch, produce
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.record_batch import iterate_batches
from oncelog.wire.records import Record, encode_batch

from .fake_broker import FETCH, PRODUCE, Answer, FakeBroker, request
from .hosted_logs import open_hosted

LIST_OFFSETS = 2
FAR_MS = 1 << 40


class FakeVerifier:
    """A verifier of transactions that answers as the test sets.

    With `hold` it waits for `release`.
    """

    def __init__(self) -> None:
        self.questions: list[tuple[str, int, int, tuple[tuple[str, int], ...], bool]] = []
        self.answers: dict[int, int] = {}  # by partition
        self.error = 0  # of the other partitions
        self.meanwhile: Callable[[], object] = lambda: None
        self.failure: Exception | None = None
        self.ongoing_index = 0
        self._gates: list[asyncio.Event] = []
        self.hold = False

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[tuple[str, int]],
        *,
        adds: bool,
    ) -> Verified:
        wanted = tuple(partitions)
        self.questions.append((transactional_id, producer_id, producer_epoch, wanted, adds))
        if self.hold:
            gate = asyncio.Event()
            self._gates.append(gate)
            await gate.wait()
        self.meanwhile()
        if self.failure is not None:
            raise self.failure
        errors = [self.answers.get(index, self.error) for _, index in wanted]
        return Verified(errors, self.ongoing_index)

    def release(self) -> None:
        """Answer all waiting verifications."""
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.set()


class LeadingBroker:
    """A broker that leads the partitions of `t`. It needs a running event loop."""

    topic = "t"

    def __init__(
        self,
        directory: Path,
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] = (1,),
        isr: tuple[int, ...] | None = None,
        min_insync_replicas: int = 1,
        fault_point: Any = None,
        log_config: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        replicas_clock: Clock | None = None,
    ) -> None:
        self.fake = FakeBroker(3, **settings or {})
        self.services = self.fake.services
        self.clock = SystemClock()
        self.replicas = ReplicaManager(
            clock=replicas_clock or self.clock,
            partition_exists=lambda topic, index: topic in ("t", OFFSETS_TOPIC),
        )
        self.replicas.work.share = TurnShare(lambda: 0.0)  # answers come in the turn of their cause
        self.replicas.peers.live = {1: 1, 2: 1}
        self.verifier = FakeVerifier()
        more = {} if fault_point is None else {"fault_point": fault_point}
        self.markers = MarkerWriter(self.replicas, **more)
        self.services.replicas = self.replicas
        self.services.verifier = self.verifier  # type: ignore[assignment]
        self.services.markers = self.markers
        log = logging.getLogger("oncelog.test")
        self.dispatcher = Dispatcher(served_apis(log), log)
        self.connections = 0
        self.record = PartitionRegistration(
            replicas=replicas, isr=replicas if isr is None else isr, leader=1, leader_epoch=1
        )
        self.min_insync_replicas = min_insync_replicas
        for index in range(partitions):
            now_ms = self.clock.wall_ms()
            hosted = open_hosted(directory, index, now_ms=now_ms, **(log_config or {}))
            self.replicas.add(hosted)
            self.make_leader(hosted, self.record)

    def make_leader(self, hosted: HostedPartition, record: PartitionRegistration) -> None:
        hosted.lead(
            record,
            node_id=1,
            broker_epoch=1,
            min_insync_replicas=self.min_insync_replicas,
            peers=self.replicas.peers,
            now_ms=self.clock.monotonic_ms(),
            lag_time_max_ms=FAR_MS,
        )

    def resign(self, index: int = 0) -> None:
        """Let node 2 become the leader of a partition."""
        hosted = self.partition(index)
        epoch = max(99, hosted.leader_epoch + 1)
        hosted.follow(PartitionRegistration((1, 2), (2,), leader=2, leader_epoch=epoch))
        self.replicas.role_changed(hosted)
        self.replicas.release_waiters(hosted, 6)

    def partition(self, index: int = 0) -> HostedPartition:
        hosted = self.replicas.get(self.topic, index)
        assert hosted is not None
        return hosted

    def log(self, index: int = 0) -> PartitionLog:
        return self.partition(index).log

    def replicate(self, index: int = 0, *, up_to: int | None = None) -> None:
        """Let node 2 fetch all records, or those below `up_to`."""
        hosted = self.partition(index)
        assert hosted.leader is not None
        offset = hosted.log.log_end_offset if up_to is None else up_to
        outcome = hosted.leader.follower_fetched(2, 1, offset, self.clock.monotonic_ms())
        self.replicas.raise_high_watermark(hosted, outcome.high_watermark)

    # -- requests

    def connect(self) -> RequestContext:
        self.connections += 1
        return RequestContext(self.services, self.connections, "127.0.0.1")

    def send(
        self,
        connection: RequestContext,
        api_key: int,
        version: int,
        values: Mapping[str, Any] | bytes,
        **more: Any,
    ) -> Answer:
        return request(self.dispatcher, connection, api_key, version, values, **more)

    def request(
        self, api_key: int, version: int, values: Mapping[str, Any] | bytes, **more: Any
    ) -> Answer:
        """Send a request on a new connection."""
        return self.send(self.connect(), api_key, version, values, **more)

    def produce(
        self,
        connection: RequestContext,
        batches: Mapping[int, Any] | Sequence[tuple[int, Any]],
        *,
        version: int = 9,
        transactional_id: str | None = "tx",
        acks: int = -1,
        timeout_ms: int = 60_000,
    ) -> Answer:
        pairs = batches.items() if isinstance(batches, Mapping) else batches
        wanted = [ProducePartition(index, batch) for index, batch in pairs]
        request = ProduceRequest(
            transactional_id, acks, timeout_ms, [ProduceTopic("t", None, wanted)]
        )
        body = b"".join(produce.encode_request(request, version))
        return self.send(connection, PRODUCE, version, body)

    def put(
        self, batches: Any, *, connection: RequestContext | None = None, **options: Any
    ) -> Answer:
        """Send a non-transactional Produce of one batch for `t-0`, or of batches by partition."""
        if isinstance(batches, bytes | bytearray):
            batches = {0: batches}
        options = {"transactional_id": None} | options
        return self.produce(connection or self.connect(), batches, **options)

    async def write(self, index: int = 0, **options: Any) -> None:
        """Produce a batch, by default without a producer id, and wait for its acknowledgement."""
        assert await self.put({index: plain(**options)}).errors() == {index: 0}

    def fetch(self, offset: int = 0, *, indexes: Iterable[int] = (0,), **fields: Any) -> Answer:
        """Fetch from these partitions, as a read_committed consumer by default."""
        return self.fetch_partitions([wanted(index, offset) for index in indexes], **fields)

    def fetch_partitions(
        self,
        partitions: list[FetchPartition],
        *,
        topics: int = 1,
        connection: RequestContext | None = None,
        **fields: Any,
    ) -> Answer:
        """Fetch from these partitions. The request has the topic `topics` times."""
        fields = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": 1} | fields
        named = [FetchTopic("t", None, partitions)] * topics
        body = b"".join(fetch.encode_request(FetchRequest(topics=named, **fields), 12))
        return self.send(connection or self.connect(), FETCH, 12, body)

    def list_offsets(self, *times: int, isolation_level: int = 0) -> Answer:
        """Send ListOffsets, with one timestamp for each partition from 0 on."""
        partitions = [
            {"partition_index": n, "current_leader_epoch": -1, "timestamp": time}
            for n, time in enumerate(times)
        ]
        topics = [{"name": "t", "partitions": partitions}]
        values = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics}
        return self.request(LIST_OFFSETS, 7, values)

    async def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        return await self.request(api_key, version, values).value()

    def mark(
        self,
        producer_id: int = 7,
        epoch: int = 0,
        *indexes: int,
        commits: bool = True,
        coordinator_epoch: int = 3,
        transaction_version: int = 0,
        wait_ms: int = 10_000,
        prepare_index: int = 0,
        leader_epoch: int | None = None,
    ) -> "asyncio.Task[list[int]]":
        """Start to write a transaction marker.

        Return the task, with an error for each partition.
        """
        marker = TransactionMarker(
            producer_id,
            epoch,
            coordinator_epoch,
            commits,
            tuple(("t", index) for index in indexes or (0,)),
            transaction_version,
            prepare_index,
            () if leader_epoch is None else (leader_epoch,) * len(indexes or (0,)),
        )

        async def write() -> list[int]:
            reply = await self.markers.write_txn_markers(WriteMarkers((marker,)), wait_ms=wait_ms)
            return list(reply.errors[0])

        return asyncio.ensure_future(write())

    def contents(self, index: int = 0) -> list[tuple[Any, ...]]:
        """Return (offset, producer id, epoch, sequence or marker type) of each batch in the log."""
        log = self.log(index)
        data = (
            log.read(log.log_start_offset, 1 << 24, upper_offset=log.log_end_offset).data
            if log.log_end_offset > log.log_start_offset
            else b""
        )
        found: list[tuple[Any, ...]] = []
        for position, header in iterate_batches(bytes(data)):
            what: Any = header.base_sequence
            if header.is_control:
                what = decode_marker(bytes(data), position)[0].name
            found.append((header.base_offset, header.producer_id, header.producer_epoch, what))
        return found


class StoppedClock:
    """A monotonic clock and a wall clock, both moved by the test."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._base_ms = SystemClock.wall_ms() - self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self._base_ms + self.now_ms

    def advanced_since_ms(self, moment_ms: int) -> int:
        return 0


def batch(
    sequence: int = 0,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    count: int = 1,
    transactional: bool = True,
    size: int = 10,
) -> bytearray:
    """Return a batch of a producer, transactional by default."""
    now_ms = SystemClock.wall_ms()
    records = [Record(i, now_ms, b"k", bytes(size)) for i in range(count)]
    return bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def wanted(index: int = 0, offset: int = 0) -> FetchPartition:
    return FetchPartition(index, offset, max_bytes=1 << 20)


def plain(sequence: int = -1, **options: Any) -> bytearray:
    """Return a non-transactional batch, without a producer id if it has no sequence."""
    anonymous = {"producer_id": -1, "epoch": -1} if sequence < 0 else {}
    return batch(sequence, transactional=False, **anonymous | options)


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
