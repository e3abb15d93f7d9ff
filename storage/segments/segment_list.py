"""The segments of a log in the order of their offsets, and the last positions of readers.

The list remembers the end positions of the last few reads, so a reader at the end of the log needs
neither an index search nor a scan. A missing position only costs a search. Every truncation and
replacement therefore drops all positions, and also the recent writes (`recent_writes`).

An iteration over segments in steps keeps .log files open, but opens indexes by path at each use.
Between two steps a truncation, a replacement or retention may remove or replace the files.
Therefore `while_unchanged` runs each such iteration of a log in use.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from ...runtime.steps import Result, Steps
from .recent_writes import NO_RECENT_WRITES
from .segment import Segment

# Enough for two followers and a few consumers; others use the index.
REMEMBERED_POSITIONS_MAX = 32


class SegmentList:
    """The segments of a log by base offset. The last is active. An open log has at least one."""

    __slots__ = ("_in_order", "_remembered", "active", "losses", "recent")

    def __init__(self) -> None:
        self._in_order: tuple[tuple[int, ...], tuple[Segment, ...]] = ((), ())
        self._remembered: dict[int, tuple[Segment, int]] = {}
        self.losses = 0  # the number of removals, replacements and truncations, without appends
        self.recent = NO_RECENT_WRITES  # set when a broker serves the log
        self.active: Segment  # set by the first `add`

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._in_order[1])

    def __len__(self) -> int:
        return len(self._in_order[1])

    @property
    def first(self) -> Segment:
        return self._in_order[1][0]

    @property
    def size_bytes(self) -> int:
        """Return the total size of all .log files in bytes."""
        return sum(segment.size_bytes for segment in self._in_order[1])

    def add(self, *segments: Segment) -> None:
        """Add segments. The segment with the highest base offset becomes active."""
        self._replace([*self._in_order[1], *segments])

    def remove(self, *segments: Segment) -> None:
        """Remove segments.

        Their .log files stay readable through references.
        """
        self.losses += 1
        gone = set(segments)
        self._replace([kept for kept in self._in_order[1] if kept not in gone])

    def floor(self, offset: int) -> Segment | None:
        """Return the last segment that begins at or below `offset`."""
        base_offsets, segments = self._in_order
        at = bisect_right(base_offsets, offset)
        return segments[at - 1] if at else None

    def after(self, segment: Segment) -> Segment | None:
        """Return the next newer segment, or None for the active segment."""
        base_offsets, segments = self._in_order
        at = bisect_right(base_offsets, segment.base_offset)
        return segments[at] if at < len(segments) else None

    def before(self, segment: Segment) -> Segment | None:
        """Return the next older segment, or None for the first segment."""
        base_offsets, segments = self._in_order
        at = bisect_left(base_offsets, segment.base_offset)
        return segments[at - 1] if at else None

    def from_floor(self, offset: int) -> tuple[Segment, ...]:
        """Return the segment that holds `offset` and all newer segments, oldest first."""
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
        """Remember that the batch of `offset` is, or will be, at `position` of `segment`."""
        remembered = self._remembered
        if offset not in remembered and len(remembered) >= REMEMBERED_POSITIONS_MAX:
            del remembered[next(iter(remembered))]
        remembered[offset] = (segment, position)

    def recall(self, offset: int) -> tuple[Segment, int] | None:
        """Return the remembered (segment, position) of an offset, or None if there is none."""
        return self._remembered.get(offset)

    def drop_cached_reads(self) -> None:
        """Drop all remembered positions and recent writes, because files were truncated."""
        self.losses += 1
        self._remembered.clear()
        self.recent.discard(self.active)


def while_unchanged(segments: SegmentList, steps: Steps[Result]) -> Steps[Result | None]:
    """Run steps that read `segments`, and return their result.

    Once a segment is removed, replaced or truncated, no further step runs, and the result is None.
    The caller may then start over.
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
