"""The positions of a consumer in its partitions, and how they are found, reset and committed.

A position comes from the caller, from the group's committed offsets, or from auto.offset.reset, in
this order. When retention has deleted the offset of a position, auto.offset.reset decides. When a
new leader's log does not continue from the position (an unclean election, KIP-320), the consumer
continues where the logs diverge, or by auto.offset.reset if that is unknown. With
auto.offset.reset=none each poll raises until the application seeks.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ...wire.errors import OffsetOutOfRange
from ...wire.identifiers import TopicPartition
from ..cluster_view import ClusterView
from ..failures import ClientClosed, LogTruncated, NoOffsetForPartition, PartitionNotAssigned
from ..group_metadata import OffsetAndMetadata
from ..settings import Settings
from .epoch_queries import EpochEnd
from .offset_queries import EARLIEST, LATEST, list_offsets
from .state import FetchState, Mark

logger = logging.getLogger(__name__)
UNKNOWN_POSITION = -1
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]]


class Positions:
    """The positions of one consumer, in `states` by (topic, partition number).

    `committed` is a function that returns the group's committed offsets, or None without a group.
    """

    def __init__(self, view: ClusterView, settings: Settings, committed: Committed | None) -> None:
        self._view, self._settings, self._committed = view, settings, committed
        self.states: dict[TopicPartition, FetchState] = {}
        self._given: list[tuple[FetchState, int, Mark]] = []  # by the last poll
        self.why_closed = ""

    def require_open(self) -> None:
        """Raise ClientClosed with the reason for the close, if the consumer is closed."""
        if self.why_closed:
            raise ClientClosed(self.why_closed)

    def close(self, why: str) -> None:
        """Forget all partitions.

        Later calls raise ClientClosed with the reason of the first close.
        """
        self.states.clear()
        self.why_closed = self.why_closed or why

    def of(self, topic: str, partition: int) -> FetchState:
        """Return the state of a partition, or raise PartitionNotAssigned."""
        state = self.states.get((topic, partition))
        if state is None:
            self.require_open()
            raise PartitionNotAssigned(f"{topic}/{partition} is not assigned to this consumer")
        return state

    def freeze(self, partitions: Iterable[TopicPartition]) -> None:
        """Mark exactly these partitions as about to be revoked, so that they are not read."""
        frozen = frozenset(partitions)
        for key, state in self.states.items():
            state.is_frozen = key in frozen

    def settle(self) -> None:
        """Begin a poll, and note that the application has finished the records of the last poll."""
        self._given = []
        for state in self.states.values():
            state.settle()

    def before_taking(self) -> list[tuple[FetchState, Mark]]:
        """Return the state of each partition with fetched data, before a poll takes records."""
        return [(state, state.mark()) for state in self.states.values() if state.has_data]

    def gives(self, before: list[tuple[FetchState, Mark]]) -> None:
        """Save which records a poll returns. `before` is the earlier result of `before_taking`."""
        self._given = [(s, s.position, mark) for s, mark in before if s.position != mark.position]

    @property
    def given_last(self) -> list[TopicPartition]:
        """The partitions of the records that the last poll returned."""
        return [(state.topic, state.partition) for state, *_ in self._given]

    def take_back(self) -> None:
        """Restore the positions before the last poll, except where a seek followed the poll."""
        given, self._given = self._given, []
        for state, position, mark in given:
            if state.position == position:
                state.back_to(mark)

    def settled(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the position after the last record that the application has finished, by
        partition.
        """
        return {
            key: OffsetAndMetadata(s.settled[0], leader_epoch=s.settled[1])
            for key, s in self.states.items()
            if s.settled[0] >= 0
        }

    def given_out(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions by partition, each with the leader epoch of the record before it."""
        return {
            key: OffsetAndMetadata(s.position, leader_epoch=s.position_epoch)
            for key, s in self.states.items()
            if s.position >= 0
        }

    @property
    def unknown(self) -> list[TopicPartition]:
        return [key for key, s in self.states.items() if s.position < 0]

    async def find(self) -> None:
        """Find the positions that are unknown.

        A position that the application sets meanwhile is kept.
        """
        wanted = {key: self.states[key] for key in self.unknown}

        def set_position(key: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
            state = wanted[key]
            if self.states.get(key) is state and state.position < 0:
                state.seek(offset, leader_epoch)

        unknown = list(wanted)
        if unknown and self._committed is not None:
            fresh = [key for key in unknown if wanted[key].log_start_offset < 0]
            found = await self._committed(fresh) if fresh else {}
            for key, each in found.items():
                set_position(key, each.offset, each.leader_epoch)
            unknown = [key for key in unknown if key not in found]
        if not unknown:
            return
        reset = self._settings.auto_offset_reset
        if reset == "none":
            raise NoOffsetForPartition(f"no offset is known for {unknown}")
        where = EARLIEST if reset == "earliest" else LATEST
        for key, offset in (await self.offsets(dict.fromkeys(unknown, where))).items():
            set_position(key, offset)

    def _is_at(self, state: FetchState, offset: int) -> bool:
        """Return whether the partition is still read, and its next fetch begins at `offset`."""
        is_read = self.states.get((state.topic, state.partition)) is state
        return is_read and state.fetch_offset == offset

    def out_of_range(self, state: FetchState, offset: int) -> None:
        """Reset a position out of range, or raise OffsetOutOfRange if auto.offset.reset is none."""
        if not self._is_at(state, offset) or state.has_data:
            return
        if self._settings.auto_offset_reset == "none":
            begins_at = state.log_start_offset  # -1: unknown
            begins = f"; it begins at {begins_at}" if begins_at >= 0 else ""
            raise OffsetOutOfRange(
                f"{state.topic}/{state.partition} has no offset {state.position}{begins}"
            )
        logger.warning(
            "%s/%d has no offset %d, so the consumer continues with auto.offset.reset=%s",
            state.topic,
            state.partition,
            state.position,
            self._settings.auto_offset_reset,
        )
        self._lose_position(state)

    def truncated(self, state: FetchState, offset: int, end: EpochEnd) -> None:
        """Move a position that is beyond `end` back to it.

        `end` is the end of the position's leader epoch in the new leader's log. Records of newer
        epochs may follow it. If it is unknown, the position is reset by auto.offset.reset. Raises
        LogTruncated if auto.offset.reset is none.
        """
        if not self._is_at(state, offset):
            return
        if self._settings.auto_offset_reset == "none":
            raise LogTruncated(
                f"{state.topic}/{state.partition} was read up to offset {state.position} (leader "
                f"epoch {state.position_epoch}); its new leader has the same records only up to "
                f"{end.end_offset} (epoch {end.leader_epoch}; -1: unknown): seek to go on"
            )
        logger.warning(
            "%s/%d was read up to offset %d (leader epoch %d), but its new leader has the same "
            "records only up to %d (-1: unknown)",
            state.topic,
            state.partition,
            state.position,
            state.position_epoch,
            end.end_offset,
        )
        if end.end_offset >= 0:
            state.seek(min(end.end_offset, state.position), end.leader_epoch)
        else:
            self._lose_position(state)

    def _lose_position(self, state: FetchState) -> None:
        # so that its committed offset is not used again
        state.log_start_offset = max(0, state.log_start_offset)
        state.seek(UNKNOWN_POSITION)

    async def seek_to(self, partitions: Iterable[TopicPartition] | None, where: int) -> None:
        """Continue from EARLIEST or LATEST in these partitions, or in all if None."""
        keys = list(self.states if partitions is None else partitions)
        for key, offset in (await self.offsets(dict.fromkeys(keys, where))).items():
            if key in self.states:
                self.states[key].seek(offset)

    async def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets as `list_offsets` does, under the consumer's isolation level."""
        self.require_open()
        return await list_offsets(
            self._view,
            wanted,
            read_committed=self._settings.isolation_level == "read_committed",
            timeout_ms=self._settings.default_api_timeout_ms,
        )
