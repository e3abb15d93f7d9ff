"""A replacement of a partition's log in memory, for the tests of replication."""

from bisect import bisect_right
from typing import NamedTuple


class Entry(NamedTuple):
    """A batch with one record."""

    offset: int
    epoch: int
    value: int


class Read(NamedTuple):
    data: bytes
    batches: int


def encode(entries: list[Entry]) -> bytes:
    return b"".join(b"%10d%10d%10d" % entry for entry in entries)


def decode(data: bytes | memoryview) -> list[Entry]:
    raw = bytes(data)
    assert len(raw) % 30 == 0
    return [
        Entry(int(raw[i : i + 10]), int(raw[i + 10 : i + 20]), int(raw[i + 20 : i + 30]))
        for i in range(0, len(raw), 30)
    ]


class MemoryLog:
    """A log of batches of 30 bytes, with leader epochs and a high watermark."""

    def __init__(self, log_start_offset: int = 0) -> None:
        self.entries: list[Entry] = []
        self.epochs: list[tuple[int, int]] = []  # (epoch, start offset)
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self._end_when_empty = log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.entries[-1].offset + 1 if self.entries else self._end_when_empty

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def assign_epoch(self, epoch: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, self.log_end_offset))

    def append(self, epoch: int, value: int) -> int:
        self.assign_epoch(epoch)
        self.entries.append(Entry(self.log_end_offset, epoch, value))
        return self.log_end_offset

    def append_as_follower(self, data: bytes | memoryview) -> None:
        for entry in decode(data):
            assert entry.offset == self.log_end_offset, "a hole or a repetition"
            self.assign_epoch(entry.epoch)
            self.entries.append(entry)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        if not self.epochs or leader_epoch > self.epochs[-1][0]:
            return -1, -1
        if leader_epoch == self.epochs[-1][0]:
            return leader_epoch, self.log_end_offset
        after = bisect_right([epoch for epoch, _ in self.epochs], leader_epoch)
        epoch = leader_epoch if after == 0 else self.epochs[after - 1][0]
        return epoch, self.epochs[after][1]

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> Read:
        assert self.log_start_offset <= offset <= self.log_end_offset
        wanted = [e for e in self.entries if offset <= e.offset < upper_offset]
        count = max(max_bytes // 30, 1 if min_one_batch else 0)
        return Read(encode(wanted[:count]), len(wanted[:count]))

    def truncate_to(self, offset: int) -> None:
        end = self.log_end_offset
        while self.entries and self.entries[-1].offset >= offset:
            self.entries.pop()
        if not self.entries:
            self._end_when_empty = max(self.log_start_offset, min(end, offset))
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.entries, self.epochs = [], []
        self.log_start_offset = self.high_watermark = self._end_when_empty = offset

    def delete_before(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        self._end_when_empty = max(self._end_when_empty, self.log_end_offset)
        self.entries = [e for e in self.entries if e.offset >= self.log_start_offset]

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))
