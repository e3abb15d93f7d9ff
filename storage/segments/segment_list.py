"""The segments of a log in the order of their offsets, and the last positions of readers.

Readers continue where they stopped. The list remembers the ends of the last few reads, so that a
reader which follows the tail needs neither an index search nor a scan; a miss costs a search,
never a wrong answer, since every cut and every swap forgets them all. So do they the recent writes
(`recent_writes`).

A walk over segments that yields holds open .log files, but indexes are opened by path at each use.
Between two steps a cut, a swap or retention may remove them, or put other files in their place. So
each such walk of a log in use goes through `while_unchanged`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ...runtime.steps import Result, Steps
from .recent_writes import NO_RECENT_WRITES
from .segment import Segment

# Two followers and a few consumers a partition; beyond that the index does the work.
REMEMBERED_POSITIONS_MAX = 32


class SegmentList:
    """The segments by base offset; the last one is active. Never empty once the log is open."""

    __slots__ = ("_in_order", "_remembered", "active", "losses", "recent")

    def __init__(self) -> None:
        self._in_order: tuple[tuple[int, ...], tuple[Segment, ...]] = ((), ())
        self._remembered: dict[int, tuple[Segment, int]] = {}
        self.losses = 0  # counts removals, replacements and cuts of segments, no appends
        self.recent = NO_RECENT_WRITES  # until a broker serves the log
        self.active: Segment  # unset until the first `add`

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._in_order[1])

    def __len__(self) -> int:
        return len(self._in_order[1])

    @property
    def first(self) -> Segment:
        return self._in_order[1][0]

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all .log files."""
        return sum(segment.size_bytes for segment in self._in_order[1])

    def add(self, *segments: Segment) -> None:
        """Add segments; the highest one becomes active. Many at once cost no more than one."""
        self._replace([*self._in_order[1], *segments])

    def remove(self, *segments: Segment) -> None:
        """Remove segments; their .log files stay readable through references to them."""
        self.losses += 1
        gone = set(segments)
        self._replace([kept for kept in self._in_order[1] if kept not in gone])

    def floor(self, offset: int) -> Segment | None:
        """Return the last segment that begins at or below `offset`."""
        base_offsets, segments = self._in_order
        at = bisect_right(base_offsets, offset)
        return segments[at - 1] if at else None

    def after(self, segment: Segment) -> Segment | None:
        """Return the next newer segment, None for the active one."""
        base_offsets, segments = self._in_order
        at = bisect_right(base_offsets, segment.base_offset)
        return segments[at] if at < len(segments) else None

    def before(self, segment: Segment) -> Segment | None:
        """Return the next older segment, None for the first one."""
        base_offsets, segments = self._in_order
        at = bisect_left(base_offsets, segment.base_offset)
        return segments[at - 1] if at else None

    def from_floor(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment that holds `offset` and all newer ones, oldest first."""
        base_offsets, segments = self._in_order
        at = bisect_right(base_offsets, offset)
        return segments[max(at - 1, 0) :]

    def _replace(self, segments: list[Segment]) -> None:
        if self._in_order[1]:
            self.recent.discard(self.active)
        segments.sort(key=lambda segment: segment.base_offset)
        self._in_order = tuple(segment.base_offset for segment in segments), tuple(segments)
        self._remembered.clear()
        if segments:
            self.active = segments[-1]

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remember that the batch of `offset` lies, or will lie, at `position` of `segment`."""
        remembered = self._remembered
        if offset not in remembered and len(remembered) >= REMEMBERED_POSITIONS_MAX:
            del remembered[next(iter(remembered))]
        remembered[offset] = (segment, position)

    def recall(self, offset: int) -> tuple[Segment, int] | None:
        """Return the remembered position of an offset, if it still holds."""
        return self._remembered.get(offset)

    def drop_cached_reads(self) -> None:
        """Drop all remembered positions and recent writes, because files were cut."""
        self.losses += 1
        self._remembered.clear()
        self.recent.discard(self.active)


def while_unchanged(segments: SegmentList, steps: Steps[Result]) -> Steps[Result | None]:
    """Return the result of steps that read `segments`; None as soon as one of these is lost.

    No step runs with other segments than the first one saw, except for newer ones. A caller that
    still wants the result starts over.
    """
    losses = segments.losses
    while segments.losses == losses:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        yield
    steps.close()
    return None
