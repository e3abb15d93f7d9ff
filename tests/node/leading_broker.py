"""A broker that leads real partitions on a disk; the coordinator and the follower are the test's.

Node 1 leads `t-0`, `t-1`, ... ; node 2 follows and has what the test says it has.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from oncelog.coordinator.metadata.cluster_model import Partition
from oncelog.coordinator.transactions.messages import TransactionMarker, WriteMarkers
from oncelog.node.clock import SystemClock
from oncelog.node.handlers.fetch import fetch as fetch_handler
from oncelog.node.handlers.fetch import offsets
from oncelog.node.handlers.produce import produce as produce_handler
from oncelog.node.handlers.transactions import markers
from oncelog.node.listener.dispatch import Dispatcher, PendingAnswer, RequestContext
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.node.transactions.marker_writer import MarkerWriter
from oncelog.node.transactions.verifier import Verified
from oncelog.replication.turn_share import TurnShare
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.control_record import decode_marker
from oncelog.wire.framing import encode_request_header, response_header_bytes
from oncelog.wire.messages import control, fetch, produce
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.record_batch import iterate_batches
from oncelog.wire.records import Record, encode_batch

from .fake_broker import FakeBroker
from .hosted_logs import open_hosted

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
CLOSED = "closed"
FAR_MS = 1 << 40


class FakeVerifier:
    """Answers what it is told to, at once, or (`hold`) when the test releases the question."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, int, int, tuple[tuple[str, int], ...], bool]] = []
        self.answers: dict[int, int] = {}  # by partition; 0 otherwise
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
        if self.failure is not None:
            raise self.failure
        return Verified([self.answers.get(index, 0) for _, index in wanted], self.ongoing_index)

    def release(self) -> None:
        """Answer all questions that wait."""
        gates, self._gates = self._gates, []
        for gate in gates:
            gate.set()


class LeadingBroker:
    """Make it inside a running event loop."""

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
        **settings: str,
    ) -> None:
        self.fake = FakeBroker(3, **settings)
        self.services = self.fake.services
        self.clock = SystemClock()
        self.replicas = ReplicaManager(
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            partition_exists=lambda topic, index: topic in ("t", "elsewhere"),
        )
        self.replicas.work.share = TurnShare(lambda: 0.0)  # answers come in the turn of their cause
        self.replicas.peers.live = {1: 1, 2: 1}
        self.verifier = FakeVerifier()
        more = {} if fault_point is None else {"fault_point": fault_point}
        self.markers = MarkerWriter(self.replicas, **more)
        self.services.replicas = self.replicas
        self.services.verifier = self.verifier  # type: ignore[assignment]
        self.services.markers = self.markers
        apis = (*produce_handler.apis(), *fetch_handler.apis(), *offsets.apis(), *markers.apis())
        self.dispatcher = Dispatcher(apis, logging.getLogger("oncelog.test"))
        self.connections = 0
        self.record = Partition(
            replicas=replicas, isr=replicas if isr is None else isr, leader=1, leader_epoch=1
        )
        self.min_insync_replicas = min_insync_replicas
        for index in range(partitions):
            hosted = open_hosted(
                directory, index, now_ms=self.clock.wall_ms(), **(log_config or {})
            )
            self.replicas.add(hosted)
            self.lead(hosted, self.record)

    def lead(self, hosted: HostedPartition, record: Partition) -> None:
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
        """Another broker leads it now."""
        hosted = self.partition(index)
        hosted.follow(Partition(replicas=self.record.replicas, isr=(2,), leader=2, leader_epoch=99))
        self.replicas.release_waiters(hosted, 6)

    def partition(self, index: int = 0) -> HostedPartition:
        hosted = self.replicas.get("t", index)
        assert hosted is not None
        return hosted

    def log(self, index: int = 0) -> PartitionLog:
        return self.partition(index).log

    def replicate(self, index: int = 0, *, up_to: int | None = None) -> None:
        """Node 2 has everything below the log end, or below `up_to`."""
        hosted = self.partition(index)
        assert hosted.leader is not None
        offset = hosted.log.log_end_offset if up_to is None else up_to
        outcome = hosted.leader.follower_fetched(2, 1, offset, self.clock.monotonic_ms())
        self.replicas.raise_high_watermark(hosted, outcome.high_watermark)

    # -- requests

    def connect(self) -> RequestContext:
        self.connections += 1
        return RequestContext(self.services, self.connections, "127.0.0.1")

    def send(self, connection: RequestContext, api_key: int, version: int, body: bytes) -> "Answer":
        frame = encode_request_header(api_key, version, 1, "test") + body
        view = memoryview(bytearray(frame))
        outcome = self.dispatcher.dispatch(connection, self.dispatcher.find(view), view)
        return Answer(api_key, version, outcome)

    def produce(
        self,
        connection: RequestContext,
        batches: Mapping[int, Any] | Sequence[tuple[int, Any]],
        *,
        version: int = 9,
        transactional_id: str | None = "tx",
        acks: int = -1,
        timeout_ms: int = 60_000,
    ) -> "Answer":
        pairs = batches.items() if isinstance(batches, Mapping) else batches
        wanted = [ProducePartition(index, batch) for index, batch in pairs]
        request = ProduceRequest(
            transactional_id, acks, timeout_ms, [ProduceTopic("t", None, wanted)]
        )
        body = b"".join(produce.encode_request(request, version))
        return self.send(connection, PRODUCE, version, body)

    def fetch(self, offset: int = 0, *, index: int = 0, **fields: Any) -> "Answer":
        """A read of committed data, unless `isolation_level` says otherwise."""
        wanted = FetchTopic("t", None, [FetchPartition(index, offset, max_bytes=1 << 20)])
        fields = {"max_wait_ms": 0, "min_bytes": 1, "isolation_level": 1} | fields
        body = b"".join(fetch.encode_request(FetchRequest(topics=[wanted], **fields), 12))
        return self.send(self.connect(), FETCH, 12, body)

    async def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
        body = control.encode_request(api_key, version, values)
        return await self.send(self.connect(), api_key, version, body).value()

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
        """Begin to write a marker; the errors by partition."""
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
            reply = await self.markers.write(WriteMarkers((marker,)), wait_ms=wait_ms)
            return list(reply.errors[0])

        return asyncio.ensure_future(write())

    def contents(self, index: int = 0) -> list[tuple[Any, ...]]:
        """What lies in the log: (offset, producer id, epoch, first sequence or marker type)."""
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


class Answer:
    """What a request came to, now or later."""

    def __init__(self, api_key: int, version: int, outcome: Any) -> None:
        self._api_key, self._version = api_key, version
        self.outcome = outcome

    @property
    def is_there(self) -> bool:
        return not isinstance(self.outcome, PendingAnswer) or self.outcome.is_done

    def abandon(self) -> None:
        assert isinstance(self.outcome, PendingAnswer)
        self.outcome.abandon()

    async def value(self, timeout_s: float = 10) -> Any:
        """The decoded answer, CLOSED, or None where there is to be none."""
        outcome = self.outcome
        if isinstance(outcome, PendingAnswer):
            if not outcome.is_done:
                done = asyncio.Event()
                outcome.notify(done.set)
                async with asyncio.timeout(timeout_s):
                    await done.wait()
            if outcome.close_reason is not None:
                return CLOSED
            outcome = outcome.buffers
        if outcome is None:
            return None
        body = memoryview(b"".join(outcome))[
            4 + response_header_bytes(self._api_key, self._version) :
        ]
        if self._api_key == PRODUCE:
            return produce.decode_response(body, self._version)
        if self._api_key == FETCH:
            return fetch.decode_response(body, self._version)
        return control.decode_response(self._api_key, self._version, body)

    async def errors(self) -> dict[int, int]:
        """Of a produce: the error codes by partition."""
        value = await self.value()
        return {p.index: p.error_code for topic in value.topics for p in topic.partitions}


def batch(
    sequence: int = 0,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    count: int = 1,
    transactional: bool = True,
    size: int = 10,
) -> bytearray:
    """What a producer sends for one partition."""
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


async def settle(turns: int = 20) -> None:
    """Let everything that can go on without anybody's help go on."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
