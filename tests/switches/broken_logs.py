"""Switches with bugs in a partition's log, such as duplicates, fences and its high watermark."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from crc32c import crc32c

from oncelog.coordinator.transactions import decisions
from oncelog.node.handlers.produce.leader_append import LeaderAppend
from oncelog.node.partitions.hosted_partition import ANY_EPOCH
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.node.transactions import service
from oncelog.node.transactions.marker_writer import MarkerWriter
from oncelog.replication import replica_server
from oncelog.replication.leader import PartitionLeader
from oncelog.replication.replica_server import judge_position
from oncelog.storage import log_config, log_read
from oncelog.storage.partition_log import Origin, PartitionLog
from oncelog.storage.producers import snapshot, snapshot_files, state
from oncelog.storage.producers.entry import ProducerEntry
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.storage.producers.verdicts import ACCEPTED, judge_marker
from oncelog.storage.producers.verification_guard import VerificationGuards
from oncelog.storage.topic_configs import LONG_MAX
from oncelog.wire.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
)
from oncelog.wire.record_batch import iterate_batches

from .patching import replaced, together

CRC_END = 6  # of a producer snapshot: version and checksum


def no_dedupe() -> AbstractContextManager[Any]:
    """A repeated batch is appended again."""
    sound = ProducerStateTable.check

    def check(self: Any, header: Any, *, origin: Any = Origin.CLIENT, guard: Any = None) -> Any:
        sound(self, header, origin=origin, guard=guard)
        return ACCEPTED

    return replaced(ProducerStateTable, "check", check)


def no_window() -> AbstractContextManager[Any]:
    """A leader forgets the last five batches of each producer, so it finds no duplicates."""
    return replaced(ProducerEntry, "find", lambda *_: None)


def no_epoch_check() -> AbstractContextManager[Any]:
    """The producer epoch of a batch is never checked."""
    sound = ProducerStateTable.check

    def check(self: Any, header: Any, *, origin: Any = Origin.CLIENT, guard: Any = None) -> Any:
        try:
            return sound(self, header, origin=origin, guard=guard)
        except InvalidProducerEpoch:
            return ACCEPTED

    def verify(record: Any, identity: Any, partitions: Any) -> Any:
        if record is not None:
            identity = identity[0], record.client[1]
        return decisions.verify_partitions(record, identity, partitions)

    return together(
        replaced(ProducerStateTable, "check", check),
        replaced(service, "verify_partitions", verify),
    )


def no_coordinator_epoch() -> AbstractContextManager[Any]:
    """A marker with the epoch of an earlier coordinator is accepted."""

    def judge(entry: Any, epoch: int, coordinator_epoch: int, version: int) -> Any:
        try:
            return judge_marker(entry, epoch, coordinator_epoch, version)
        except TransactionCoordinatorFenced:
            return ACCEPTED

    return replaced(state, "judge_marker", judge)


def no_prepare_index() -> AbstractContextManager[Any]:
    """A marker with the right epochs ends any transaction, not only its own."""
    sound = MarkerWriter._append

    def append(self: Any, marker: Any, topic: str, index: int, _leader_epoch: int) -> Any:
        return sound(self, marker, topic, index, ANY_EPOCH)

    return together(
        replaced(state, "check_marker_is_due", lambda *_: None),
        replaced(MarkerWriter, "_append", append),
    )


def no_stable_offset() -> AbstractContextManager[Any]:
    """Readers of committed data read up to the high watermark."""
    stable = property(lambda self: self.high_watermark)
    return replaced(PartitionLog, "last_stable_offset", stable)


def no_guard() -> AbstractContextManager[Any]:
    """A transactional batch of a client without KIP-890 is appended without verification."""
    sound = ProducerStateTable.begin_verification

    def begin(
        self: Any, *identity: int, now_ms: int, supports_epoch_bump: bool = False
    ) -> int | None:
        if not supports_epoch_bump:
            return None
        return sound(self, *identity, now_ms=now_ms, supports_epoch_bump=True)

    return together(
        replaced(ProducerStateTable, "begin_verification", begin),
        replaced(VerificationGuards, "check_guard", lambda *_: None),
    )


def early_acknowledgement() -> AbstractContextManager[Any]:
    """A Produce with acks=all is answered when only the leader has the batch."""
    return replaced(ReplicaManager, "wait_key", staticmethod(lambda *_: None))


def lone_high_watermark() -> AbstractContextManager[Any]:
    """The high watermark is the leader's log end, even if its followers are behind."""
    sound = PartitionLeader.appended

    def raised(self: Any, _now_ms: int) -> int | None:
        return self.log_end_offset if self.log_end_offset > self._log.high_watermark else None

    def appended(self: Any, log_end_offset: int, now_ms: int, **flushed: bool) -> int | None:
        return sound(self, log_end_offset, now_ms, **flushed) or raised(self, now_ms)

    return together(
        replaced(PartitionLeader, "_next_high_watermark", raised),
        replaced(PartitionLeader, "appended", appended),
    )


def no_truncation() -> AbstractContextManager[Any]:
    """A follower's log is never truncated unless it is longer than the leader's."""

    def judge(slot: Any, log: Any) -> Any:
        if log.log_start_offset <= slot.fetch_offset <= log.log_end_offset:
            return None
        return judge_position(slot, log)

    return replaced(replica_server, "judge_position", judge)


def no_flush() -> AbstractContextManager[Any]:
    """A record in a log with flush.messages=1 is acknowledged before it is synced."""
    sound = log_config._parsed

    def parsed(*configs: Any) -> Any:
        return replace(sound(*configs), flush_messages=LONG_MAX)

    return replaced(log_config, "_parsed", parsed)


def unchecked_snapshot() -> AbstractContextManager[Any]:
    """A producer snapshot with a wrong checksum is loaded."""

    def decode(data: bytes, path: Any = "snapshot") -> Any:
        body = data[CRC_END:]
        return snapshot.decode(data[:2] + crc32c(body).to_bytes(4, "big") + body, path)

    return replaced(snapshot_files, "decode_snapshot", decode)


def believed_time() -> AbstractContextManager[Any]:
    """The age of a batch is read only from its header, not from its records."""
    sound = LeaderAppend.confirm

    def confirm(self: Any, header: Any, *given: Any) -> Any:
        if self.record_error is None:
            return header
        return sound(self, header, *given)

    return replaced(LeaderAppend, "confirm", confirm)


def unchecked_reads() -> AbstractContextManager[Any]:
    """Bytes from the files of a log are served without a check."""
    sound = log_read.check_batches

    def check(data: Any, from_offset: int, end_offset: int, epochs: Any, bytes_max: int) -> Any:
        try:
            return sound(data, from_offset, end_offset, epochs, bytes_max)
        except CorruptMessage:
            found = [h for at, h in iterate_batches(data) if at + h.size_bytes <= bytes_max]
            return sum(h.size_bytes for h in found), found[-1].next_offset, len(found)

    return replaced(log_read, "check_batches", check)
