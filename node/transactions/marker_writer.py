"""The writer of transaction markers in the partitions that this broker leads.

A marker is a control batch of one record. Its coordinator repeats it until the answer is NONE, so a
repeated write must be harmless. The answer is NONE only for a committed marker, which is below the
high watermark of the leader that wrote it. A marker that is not committed in time is answered with
REQUEST_TIMED_OUT. A repetition then waits for the marker in the log, and writes no other.

Markers come from coordinators over the control link, and from admin clients (WriteTxnMarkers).
"""

import asyncio
import logging
from collections.abc import Hashable, Iterable, Sequence
from itertools import repeat
from typing import NamedTuple

from ...coordinator.transactions.messages import TransactionMarker, WriteMarkers, WriteMarkersReply
from ...replication.delayed_operations import DelayedProduce
from ...replication.leader import PartitionLeader
from ...replication.messages import PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.handlers import Buffer, Reply
from ...replication.peer.transport import PeerTransport
from ...runtime.background_task import TaskSet
from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.steps import StepCounter, Steps
from ...storage.partition_log import Origin
from ...storage.producers.entry import NO_OFFSET
from ...wire.control_record import ControlType, encode_marker
from ...wire.errors import ErrorCode, KafkaError
from ...wire.record_batch import decode_header
from ..partitions.hosted_partition import ACKS_ALL, ANY_EPOCH, HostedPartition
from ..partitions.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
COMMIT_WAIT_MS = 1_000  # limited, so that a lagging partition does not delay other transactions
APPENDS_A_STEP = 16  # about half a millisecond
REQUESTS_MAX = 1_024  # the limit of concurrent requests of peers


class _Written(NamedTuple):
    """A marker that this broker has appended, which may be lost if the leadership changes."""

    partition: HostedPartition
    leader: PartitionLeader
    offset: int

    @property
    def error(self) -> int:
        """Return NONE once the marker is committed, else an error."""
        if self.partition.leader is not self.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.partition.log.high_watermark <= self.offset:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE


class MarkerWriter:
    """The marker writer of one broker.

    `fault_point` is called around each append, with "partition.before-marker" and
    "partition.after-marker".
    """

    def __init__(
        self, replicas: ReplicaManager, *, fault_point: FaultPoint = no_fault_point
    ) -> None:
        self._replicas = replicas
        self._fault_point = fault_point
        self._tasks = TaskSet(logger, "writing transaction markers failed")
        self.written_count = 0

    def serve(self, transport: PeerTransport) -> None:
        """Start to answer the coordinators on other brokers."""
        transport.on_request(PeerMessage.WRITE_TRANSACTION_MARKERS, self._asked)

    async def stop(self) -> None:
        """Abandon the writes in flight, which coordinators repeat."""
        await self._tasks.stop()

    async def write_txn_markers(
        self, request: WriteMarkers, *, wait_ms: int = COMMIT_WAIT_MS
    ) -> WriteMarkersReply:
        """Write markers, and return an ErrorCode number for each marker and partition.

        NONE means that the marker is committed. The wait for replicas is at most `wait_ms`.
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE and TRANSACTION_COORDINATOR_FENCED mean that the
        partition refuses the marker for good, so a repetition is harmless, but seldom succeeds.
        After any other error the marker may be repeated.
        """
        work = self._replicas.work
        written: dict[HostedPartition, _Written] = {}
        outcomes = await work.finish("WriteTxnMarkers", self._appending(request, written))
        await self._until_committed(written.values(), wait_ms)
        errors = await work.finish("WriteTxnMarkers", _errors(outcomes))
        return WriteMarkersReply(tuple(errors))

    # -- one marker

    def _appending(
        self, request: WriteMarkers, written: dict[HostedPartition, _Written]
    ) -> Steps[list[list[_Written | int]]]:
        """Append markers, and return the result for each marker and partition.

        The last result of each partition is also stored in `written`.
        """
        outcomes: list[list[_Written | int]] = []
        counter = StepCounter(APPENDS_A_STEP)
        for marker in request.markers:
            of_marker: list[_Written | int] = []
            outcomes.append(of_marker)
            epochs = marker.leader_epochs or repeat(ANY_EPOCH)
            for (topic, index), leader_epoch in zip(marker.partitions, epochs, strict=False):
                outcome = self._append(marker, topic, index, leader_epoch)
                of_marker.append(outcome)
                if isinstance(outcome, _Written):
                    last = written.setdefault(outcome.partition, outcome)
                    if last.leader is not outcome.leader or last.offset < outcome.offset:
                        written[outcome.partition] = outcome
                if counter.ends_step():
                    yield
            if counter.ends_step():
                yield
        return outcomes

    def _append(
        self, marker: TransactionMarker, topic: str, index: int, leader_epoch: int
    ) -> "_Written | int":
        partition = self._replicas.get(topic, index)
        if partition is None:
            # Kafka's answer for a partition that is led elsewhere.
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            leader = partition.leading(leader_epoch)
            offset = _uncommitted_repetition(partition, marker)
            if offset is None:
                offset = self._write(partition, marker)
            else:
                partition.log.producer_state.drop_guard(marker.producer_id)
        except KafkaError as error:
            logger.info(
                "%r: the marker of producer %d was not written: %s",
                partition,
                marker.producer_id,
                error,
            )
            return error.number
        return _Written(partition, leader, offset)

    def _write(self, partition: HostedPartition, marker: TransactionMarker) -> int:
        """Append one marker, and return its offset."""
        batch = memoryview(
            bytearray(
                encode_marker(
                    ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    coordinator_epoch=marker.coordinator_epoch,
                    timestamp_ms=self._replicas.clock.wall_ms(),
                )
            )
        )
        self._fault_point("partition.before-marker")
        info = self._replicas.append(
            partition,
            batch,
            decode_header(batch),
            ACKS_ALL,
            origin=Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
            prepare_index=marker.prepare_index,
        )
        self._fault_point("partition.after-marker")
        partition.transactional_ids.pop(marker.producer_id, None)
        self.written_count += not info.is_duplicate
        return info.last_offset

    async def _until_committed(self, written: Iterable[_Written], wait_ms: int) -> None:
        waiting: dict[Hashable, int] = {
            each.partition: each.offset + 1
            for each in written
            if each.error == ErrorCode.REQUEST_TIMED_OUT
        }
        if not waiting:
            return
        done = asyncio.get_running_loop().create_future()
        deadline_ms = self._replicas.clock.monotonic_ms() + wait_ms
        operation = DelayedProduce(
            waiting, deadline_ms, lambda _: done.done() or done.set_result(None)
        )
        self._replicas.wait_produce(operation)
        try:
            await done
        finally:
            self._replicas.purgatory.cancel(operation)

    # -- requests of peers

    def _asked(self, peer: int, header: bytes, _frames: list[Buffer], reply: Reply) -> None:
        request = decode_message(WriteMarkers, header)
        if len(self._tasks) >= REQUESTS_MAX:
            raise OverflowError("too many requests for markers are under way")
        self._tasks.spawn(self._answer(request, reply))

    async def _answer(self, request: WriteMarkers, reply: Reply) -> None:
        reply(encode_message(await self.write_txn_markers(request)), ())


def _errors(outcomes: "Sequence[Sequence[_Written | int]]") -> Steps[list[tuple[int, ...]]]:
    errors: list[tuple[int, ...]] = []
    counter = StepCounter()
    for of_marker in outcomes:
        some: list[int] = []
        for each in of_marker:
            some.append(each.error if isinstance(each, _Written) else each)
            if counter.ends_step():
                yield
        errors.append(tuple(some))
        if counter.ends_step():
            yield
    return errors


def _uncommitted_repetition(partition: HostedPartition, marker: TransactionMarker) -> int | None:
    """Return the offset of the same marker if it is in the log, but not committed yet.

    A coordinator ends a producer's next transaction only when all markers of the current one are
    committed. So an uncommitted marker of the same epochs, without later records of the producer,
    is the same marker. There is one exception while the high watermark of a new leader lags: the
    marker may be of an earlier transaction. The new transaction then has no records in this
    partition, so its marker would only end verifications. Transaction version 2 needs no such
    check, because the epoch identifies a repetition.
    """
    entry = partition.log.producer_state.entry(marker.producer_id)
    if (
        entry is not None
        and entry.transaction_first_offset == NO_OFFSET
        and entry.epoch == marker.producer_epoch
        and entry.coordinator_epoch == marker.coordinator_epoch
        and entry.last_marker_offset >= partition.log.high_watermark
        and entry.last_marker_offset > entry.last_data_offset
    ):
        return entry.last_marker_offset
    return None
