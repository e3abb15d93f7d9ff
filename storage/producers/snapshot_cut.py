"""The producers of a partition as they were at one offset, while the log goes on.

A snapshot of many producers is encoded in steps, and between two of them batches are appended. So
each entry that is about to change is noted before, once; what has not changed until its turn comes
is as it was. To note all at the beginning would take as long as to encode them.
"""

from collections.abc import Mapping
from heapq import merge

from ...runtime.steps import Steps
from .entry import ProducerEntry
from .snapshot import ProducerSnapshotEntry, encoding

_IDS_A_STEP = 2048


class SnapshotCut:
    """All entries as of now; `keep` must be called with the id of one before it changes."""

    __slots__ = ("_ids", "_kept", "_unchanged", "end_offset")

    def __init__(self, entries: Mapping[int, ProducerEntry], end_offset: int) -> None:
        self.end_offset = end_offset
        self._ids = list(entries)
        self._unchanged = dict(entries)
        self._kept: dict[int, ProducerSnapshotEntry] = {}

    def keep(self, producer_id: int) -> None:
        """Note an entry as it is, before it changes."""
        entry = self._unchanged.pop(producer_id, None)
        if entry is not None:
            self._kept[producer_id] = entry.to_snapshot()

    def encode(self) -> Steps[bytes]:
        """The bytes of the snapshot."""
        runs: list[list[int]] = []
        for first in range(0, len(self._ids), _IDS_A_STEP):
            runs.append(sorted(self._ids[first : first + _IDS_A_STEP]))
            yield
        ordered = map(self._take, merge(*runs))
        return (yield from encoding(ordered, len(self._ids)))

    def _take(self, producer_id: int) -> ProducerSnapshotEntry:
        entry = self._unchanged.pop(producer_id, None)
        return self._kept.pop(producer_id) if entry is None else entry.to_snapshot()
