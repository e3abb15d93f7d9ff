"""Switches with bugs that use outdated or unchecked state.

They concern the cleaned offset of a deleted topic, a group that is being deleted, an index entry,
and a former transaction.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from oncelog.node.groups.coordinator import GroupCoordinator
from oncelog.node.groups.shard import GroupShard
from oncelog.node.handlers.produce import verification
from oncelog.storage.checkpoint import CLEANED_OFFSETS
from oncelog.storage.directory.partition_offsets import PartitionOffsets
from oncelog.storage.producers.entry import NO_OFFSET
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.storage.producers.verification_guard import VerificationGuards
from oncelog.storage.segments import segment
from oncelog.storage.segments.index import SegmentIndex
from oncelog.storage.segments.log_file import scan_headers
from oncelog.storage.segments.segment import Segment

from .patching import replaced, together


def cleaned_by_name() -> AbstractContextManager[Any]:
    """The cleaned offset is stored by the log's name, and a new topic of that name inherits it."""
    sound = PartitionOffsets.lower

    def lower(self: PartitionOffsets, *given: Any) -> None:
        self._written[CLEANED_OFFSETS] = {}  # as if nothing there could be too high
        sound(self, *given)

    return replaced(PartitionOffsets, "lower", lower)


def returning_group() -> AbstractContextManager[Any]:
    """A request for a group that is being deleted creates the group again."""
    sound = GroupCoordinator.shard_for

    def shard_for(self: GroupCoordinator, group_id: str) -> GroupShard:
        shard = sound(self, group_id)
        shard.keep_offsets_group(group_id)
        return shard

    return replaced(GroupCoordinator, "shard_for", shard_for)


def believed_index() -> AbstractContextManager[Any]:
    """An index entry is used without a check against the log."""

    def headers_near(self: Segment, offset: int) -> Any:
        start = self.offset_index.lookup(offset)[1]
        return scan_headers(self.file, start, self.size_bytes)

    return together(
        replaced(Segment, "headers_near", headers_near),
        replaced(segment, "check_time_entry", lambda _, entry: entry),
        replaced(SegmentIndex, "check", lambda _: None),
    )


def former_transaction() -> AbstractContextManager[Any]:
    """A batch of the next transaction of a V2 producer is accepted unverified (KAFKA-18575)."""
    check, begin = ProducerStateTable.check, ProducerStateTable.begin_verification
    must = verification.must_be_verified

    def is_open(table: ProducerStateTable, producer_id: int) -> bool:
        entry = table.entry(producer_id)
        return entry is not None and entry.transaction_first_offset != NO_OFFSET

    def checked(self: ProducerStateTable, header: Any, **given: Any) -> Any:
        believes = is_open(self, header.producer_id)
        with _no_guard() if believes else nullcontext():
            return check(self, header, **given)

    def begun(self: ProducerStateTable, producer_id: int, *given: Any, **named: Any) -> int | None:
        if is_open(self, producer_id):
            return None
        return begin(self, producer_id, *given, **named)

    return together(
        replaced(ProducerStateTable, "check", checked),
        replaced(ProducerStateTable, "begin_verification", begun),
        replaced(
            verification,
            "must_be_verified",
            lambda table, header: not is_open(table, header.producer_id) and must(table, header),
        ),
    )


def _no_guard() -> AbstractContextManager[Any]:
    return replaced(VerificationGuards, "check_guard", lambda *_: None)
