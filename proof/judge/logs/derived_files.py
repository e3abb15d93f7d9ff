"""Compares the files beside a log with the log (check W3), without writing.

The log is replayed by the judge's own rules (raw_log.py), and not by the broker's code that made
the files, so that one mistake is not made twice. These files are compared:

    .index, .timeindex        each entry names an existing batch, with the correct timestamp
    .txnindex                 the aborted transactions with markers in the segment
    .snapshot                 the state of every producer, as of its offset
    leader-epoch-checkpoint   the leader epoch that wrote each part

A file may lack its newest entries (they are written late), and a snapshot may lack expired
producers. If the beginning of a log was deleted, or if the log was compacted, producers are judged
only as far as the remaining records show, and .txnindex is not judged.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from ....storage.corrupt_file import CorruptFile
from ....storage.producers import snapshot
from ....wire.errors import KafkaError
from ....wire.record_batch import BatchHeader, check_crc, iterate_batches
from ..history.schema import Marker
from .raw_log import LoggedBatch, RawLog

Problem = tuple[str, str]  # file name, what is wrong
_OFFSET, _TIME, _ABORTED = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")


def check_partition(folder: Path, *, is_compacted: bool = False) -> Iterator[Problem]:
    """Yield the problems of the files beside a partition's log.

    A damaged batch ends the check of the partition.
    """
    logs = sorted(folder.glob("*.log"))
    if not logs:
        return
    is_whole = int(logs[0].stem) == 0 and not is_compacted
    replay = RawLog(is_whole)
    aborted: list[tuple[int, int, int, int]] = []
    epochs = _epoch_starts(folder)
    end = int(logs[-1].stem)
    snapshots = {int(f.stem): f for f in folder.glob("*.snapshot") if f.stem.isdecimal()}
    for log in logs:
        base = int(log.stem)
        yield from _snapshot(snapshots.pop(base, None), replay)
        content = memoryview(log.read_bytes())
        seen: dict[int, BatchHeader] = {}  # by position
        aborted_before = len(aborted)
        try:
            for position, header in iterate_batches(content):
                check_crc(content, position, header)
                if header.base_offset in snapshots:
                    yield from _snapshot(snapshots.pop(header.base_offset), replay)
                seen[position] = header
                data = content[position : position + header.size_bytes]
                aborted += _aborted_by(LoggedBatch.of(header, data), replay)
                end = header.next_offset
                expected, is_newest = _epoch_at(epochs, header.base_offset)
                epoch = header.partition_leader_epoch
                if expected not in (-1, epoch) and not (is_newest and epoch > expected):
                    yield (
                        "leader-epoch-checkpoint",
                        f"offset {header.base_offset} was written in leader epoch {epoch}, "
                        f"the file says {expected}",
                    )
        except KafkaError as problem:
            yield log.name, str(problem)
            return
        yield from _offset_index(log.with_suffix(".index"), base, seen)
        yield from _time_index(log.with_suffix(".timeindex"), base, seen)
        if is_whole:
            made = aborted[aborted_before:]
            yield from _transaction_index(log.with_suffix(".txnindex"), made)
    yield from _snapshot(snapshots.pop(end, None), replay)


def _aborted_by(batch: LoggedBatch, replay: RawLog) -> Iterator[tuple[int, int, int, int]]:
    """Feed the next batch to the replay, and yield index entries of transactions that it aborts."""
    before = len(replay.ended)
    for _ in replay.feed(batch):
        pass  # W1 reports problems of the log itself
    for one in replay.ended[before:]:
        if one.marker == Marker.ABORT:
            open_since = [o.first_offset for o in replay.open_transactions()]
            stable = min(open_since, default=batch.last_offset + 1)
            yield one.producer_id, one.first_offset, one.last_offset, stable


def _offset_index(file: Path, base: int, seen: dict[int, BatchHeader]) -> Iterator[Problem]:
    before = -1
    for relative, position in _entries(file, _OFFSET):
        header = seen.get(position)
        if relative <= 0 and position == 0 and before >= 0:
            return  # the zeros after the last entry of an open file
        if header is None:
            yield file.name, f"no batch begins at position {position}"
        elif header.last_offset != base + relative:
            yield (
                file.name,
                f"the batch at position {position} ends at offset {header.last_offset}, "
                f"the entry says {base + relative}",
            )
        if relative <= before:
            yield file.name, f"offset {base + relative} stands after {base + before}"
        before = relative


def _time_index(file: Path, base: int, seen: dict[int, BatchHeader]) -> Iterator[Problem]:
    headers = list(seen.values())
    at, largest = 0, -1
    before = (-1, -1)
    for timestamp, relative in _entries(file, _TIME):
        if timestamp <= 0 and before[0] >= 0:
            return
        while at < len(headers) and headers[at].last_offset <= base + relative:
            largest = max(largest, headers[at].max_timestamp)
            at += 1
        within = headers[at : at + 1]  # an entry may name an offset inside a batch
        bound = max(
            [largest, *[h.max_timestamp for h in within if h.base_offset <= base + relative]]
        )
        if largest > timestamp or timestamp > bound:
            yield (
                file.name,
                f"up to offset {base + relative} the largest timestamp is {largest}, "
                f"the entry says {timestamp}",
            )
        if (timestamp, relative) < before:
            yield file.name, f"entry {timestamp, relative} stands after {before}"
        before = (int(timestamp), int(relative))


def _transaction_index(file: Path, made: list[tuple[int, int, int, int]]) -> Iterator[Problem]:
    found = [entry[1:] for entry in _entries(file, _ABORTED)]
    for entry in [e for e in made if e not in found]:
        yield file.name, f"(producer, first, last, stable) {entry} is missing"
    for entry in [e for e in found if e not in made]:
        yield file.name, f"(producer, first, last, stable) {entry} is not in the log"


def _snapshot(file: Path | None, replay: RawLog) -> Iterator[Problem]:
    if file is None:
        return
    try:
        entries = snapshot.decode(file.read_bytes(), file)
    except CorruptFile as problem:
        yield file.name, str(problem)
        return
    kept = {entry.producer_id: entry for entry in entries}
    for producer_id, p in replay.producers.items():
        entry = kept.get(producer_id)
        if entry is None:
            if p.first_offset >= 0 and replay.is_whole:
                yield file.name, f"producer {producer_id} is missing, its transaction is open"
            continue
        if not p.has_sequences or (
            not replay.is_whole and p.last_offset < max(entry.last_offset, 0)
        ):
            continue  # its last records may have been deleted or cleaned away
        of_log = [p.epoch, p.last_sequence, p.last_offset, p.offset_delta]
        of_file = [*entry[1:5]]
        if replay.is_whole:
            of_log += [p.timestamp_ms, p.coordinator_epoch, p.first_offset]
            of_file += [*entry[5:8]]
        if of_log != of_file:
            yield file.name, f"producer {producer_id}: {of_file}, the log gives {of_log}"


def _epoch_starts(folder: Path) -> list[tuple[int, int]]:
    file = folder / "leader-epoch-checkpoint"
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[2:]
    return [(int(start), int(epoch)) for epoch, start in (x.split() for x in lines if x.strip())]


def _epoch_at(starts: list[tuple[int, int]], offset: int) -> tuple[int, bool]:
    """Return the leader epoch of an offset, -1 if none, and whether it is the last epoch."""
    before = [epoch for start, epoch in starts if start <= offset]
    return before[-1] if before else -1, len(before) == len(starts)


def _entries(file: Path, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
    if file.exists():
        content = file.read_bytes()
        yield from layout.iter_unpack(content[: len(content) // layout.size * layout.size])
