"""The committed offsets of one partition of __consumer_offsets, as its log describes them.

The table changes only by `replay`, batch by batch in log order. Therefore a coordinator that has
just loaded the log and a coordinator that has served for a week have the same table. A compacted
log replays to the same table.

Offsets of a transaction (KIP-98) are pending until its marker. COMMIT makes each pending offset
visible, unless there is a newer offset *in the log*. Compaction keeps the last record of a key, and
the table must agree with the log even if a non-transactional commit lies between the pending offset
and the marker. ABORT drops the pending offsets, and so does a tombstone. A pending offset makes a
partition unstable for fetches of stable offsets.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from ...runtime.steps import StepCounter, Steps, run_to_end
from ...wire.control_record import ControlType, marker_of
from ...wire.errors import InvalidRecord
from ...wire.identifiers import TopicPartition
from ...wire.record_batch import BatchHeader
from ...wire.records import Record
from .records import (
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_offset_value,
    encode_offset_key,
)

ENTRIES_A_STEP = 256


class LoggedOffset(NamedTuple):
    """A committed offset, and the log offset of the record that contains it."""

    record_offset: int
    value: OffsetValue


class OffsetTable:
    """Committed offsets by group, topic and partition.

    `broken_records` counts unreadable records. Such a record is skipped, so that it does not make
    all groups of its partition unavailable.
    """

    def __init__(self) -> None:
        self.size = 0  # committed and pending offsets
        self.broken_records = 0
        self._committed: dict[str, dict[TopicPartition, LoggedOffset]] = {}
        self._pending: dict[int, dict[str, dict[TopicPartition, LoggedOffset]]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}  # producers with pending offsets

    # -- replay

    def replay(self, header: BatchHeader, records: Sequence[Record]) -> None:
        """Apply one committed batch of the log in one step (see `replaying`)."""
        run_to_end(self.replaying(header, records))

    def replaying(self, header: BatchHeader, records: Sequence[Record]) -> Steps[None]:
        """Apply one committed batch of the log in steps.

        Control batches (markers) end transactions, and only they take several steps. Between two
        steps a reader finds each offset either before or after the end of the transaction. Records
        of other types are skipped.
        """
        if header.is_control:
            yield from self._replaying_marker(header.producer_id, records)
            return
        producer_id = header.producer_id if header.is_transactional else None
        for record in records:
            try:
                key = decode_key(record.key)
                if not isinstance(key, OffsetKey):
                    continue
                if record.value is None:
                    self._drop(key.group_id, (key.topic, key.partition))
                    continue
                offset = LoggedOffset(record.offset, decode_offset_value(record.value))
            except InvalidRecord:
                self.broken_records += 1
                continue
            where = (key.topic, key.partition)
            if producer_id is None:
                self._put(key.group_id, where, offset)
            else:
                self._put_pending(producer_id, key.group_id, where, offset)

    def _replaying_marker(self, producer_id: int, records: Sequence[Record]) -> Steps[None]:
        for record in records:  # one record, or none if compaction has emptied the batch
            try:
                is_commit = marker_of(record)[0] is ControlType.COMMIT
            except InvalidRecord:
                self.broken_records += 1
                continue
            yield from self._ending_transaction(producer_id, is_commit)

    def _ending_transaction(self, producer_id: int, is_commit: bool) -> Steps[None]:
        groups = self._pending.get(producer_id, {})
        counter = StepCounter(ENTRIES_A_STEP)
        for group_id in list(groups):
            pending = groups[group_id]
            while pending:
                where, offset = pending.popitem()
                self.size -= 1
                self._close(group_id, where, producer_id)
                newest = self._committed.get(group_id, {}).get(where)
                if is_commit and (newest is None or offset.record_offset > newest.record_offset):
                    self._put(group_id, where, offset)
                if counter.ends_step():
                    yield
            groups.pop(group_id, None)
        self._pending.pop(producer_id, None)

    def _put(self, group_id: str, where: TopicPartition, offset: LoggedOffset) -> None:
        offsets = self._committed.setdefault(group_id, {})
        self.size += where not in offsets
        offsets[where] = offset

    def _put_pending(
        self, producer_id: int, group_id: str, where: TopicPartition, offset: LoggedOffset
    ) -> None:
        offsets = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        self.size += where not in offsets
        offsets[where] = offset
        self._open.setdefault(group_id, {}).setdefault(where, set()).add(producer_id)

    def _drop(self, group_id: str, where: TopicPartition) -> None:
        offsets = self._committed.get(group_id, {})
        if offsets.pop(where, None) is not None:
            self.size -= 1
            if not offsets:
                del self._committed[group_id]
        for producer_id in tuple(self._open.get(group_id, {}).get(where, ())):
            self.size -= 1
            self._close(group_id, where, producer_id)
            groups = self._pending[producer_id]
            del groups[group_id][where]
            if not groups[group_id]:
                del groups[group_id]
                if not groups:
                    del self._pending[producer_id]

    def _close(self, group_id: str, where: TopicPartition, producer_id: int) -> None:
        wheres = self._open[group_id]
        wheres[where].discard(producer_id)
        if not wheres[where]:
            del wheres[where]
            if not wheres:
                del self._open[group_id]

    # -- questions ---------------------------------------------------------------------------

    def fetch(self, group_id: str, topic: str, partition: int) -> OffsetValue | None:
        """Return the committed offset, or None."""
        offset = self._committed.get(group_id, {}).get((topic, partition))
        return None if offset is None else offset.value

    def committed(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions with committed offsets of a group."""
        return list(self._committed.get(group_id, ()))

    def count(self, group_id: str) -> int:
        """Return the number of committed offsets of a group."""
        return len(self._committed.get(group_id, ()))

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction may still change the offset (KIP-447)."""
        return (topic, partition) in self._open.get(group_id, {})

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether the partition has a committed or pending offset of the group."""
        return self.fetch(group_id, topic, partition) is not None or self.is_unstable(
            group_id, topic, partition
        )

    def group_ids(self) -> set[str]:
        """Return the groups that have committed or pending offsets."""
        return self._committed.keys() | self._open.keys()

    def has_offsets(self, group_id: str) -> bool:
        """Return whether a group has committed or pending offsets."""
        return group_id in self._committed or group_id in self._open

    def has_pending(self, group_id: str) -> bool:
        """Return whether a group has offsets of open transactions, so that it must not expire."""
        return group_id in self._open

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions with committed or pending offsets of a group."""
        committed, pending = self._committed.get(group_id, {}), self._open.get(group_id, {})
        return [*committed, *(where for where in pending if where not in committed)]

    # -- removals, as the keys of tombstones

    def expired(
        self,
        group_id: str,
        *,
        base_ms: int | None,
        now_ms: int,
        retention_ms: int,
        advanced_since_ms: Callable[[int], int],
        subscribed: Container[str] = frozenset(),
        among: Iterable[TopicPartition] | None = None,
    ) -> list[bytes]:
        """Return the keys of the group's expired offsets (KIP-211).

        The retention starts at `base_ms`, when the group became empty, or at each commit if
        `base_ms` is None. `among`: the partitions to examine, by default all. `advanced_since_ms`
        returns the advances of the cluster's clock since a time. An offset may have its own
        retention. Offsets of subscribed topics, and of partitions with pending offsets, are kept.
        """
        unstable = self._open.get(group_id, {})
        committed = self._committed.get(group_id, {})
        return [
            encode_offset_key(group_id, *where)
            for where in (committed if among is None else among)
            if where in committed
            and where[0] not in subscribed
            and where not in unstable
            and _is_expired(
                committed[where].value, base_ms, now_ms, retention_ms, advanced_since_ms
            )
        ]

    def of_deleted_topics(
        self, group_id: str, topics: Mapping[str, bytes], *, among: Iterable[TopicPartition]
    ) -> list[bytes]:
        """Return the keys of offsets that were committed for deleted topics.

        Pending offsets, and offsets without a topic id, also count. Offsets of a new topic with the
        name of a deleted topic are not included. topics: the ids of the deleted topics by name.
        among: the partitions to examine.
        """
        committed, unstable = self._committed.get(group_id, {}), self._open.get(group_id, {})
        found: list[bytes] = []
        for where in among:
            if where[0] not in topics:
                continue
            offsets = [self._pending[each][group_id][where] for each in unstable.get(where, ())]
            if where in committed:
                offsets.append(committed[where])
            gone = (topics[where[0]], NO_TOPIC_ID)
            if any(offset.value.topic_id in gone for offset in offsets):
                found.append(encode_offset_key(group_id, *where))
        return found

    # -- the end

    def clearing(self) -> Steps[None]:
        """Free all offsets, a few entries in each step, since a million takes long."""
        self._open.clear()
        tables = [self._committed, *self._pending.values()]
        self._pending.clear()
        count = self.size = 0
        for table in tables:
            while table:
                offsets = table.popitem()[1]
                while offsets:
                    offsets.popitem()
                    count += 1
                    if count % ENTRIES_A_STEP == 0:
                        yield


def _is_expired(
    value: OffsetValue,
    base_ms: int | None,
    now_ms: int,
    retention_ms: int,
    advanced_since_ms: Callable[[int], int],
) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms + advanced_since_ms(value.commit_timestamp_ms) >= value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms if base_ms is None else base_ms
    return now_ms + advanced_since_ms(since_ms) - since_ms >= retention_ms
