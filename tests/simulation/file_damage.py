"""Damaged bytes in the files of one machine, while its process runs or before a start.

Only one machine of a run has damage, since data damaged on all replicas is lost. Damage that
prevents a start (in the machine's own state or Raft's files) is repaired when all faults end, as an
operator would do. Damaged bytes that no process has read by the end of a run are restored before
the judge reads the files, because it would report them.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.storage.log_read import TimedBatch
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.record_batch import BatchHeader, decode_header, iterate_batches

from .outcome import Fault
from .virtual_cluster import VirtualCluster
from .virtual_disk import REAL
from .virtual_node import VirtualNode

BEFORE_A_START = 1
BYTES_A_FAULT = 3  # each in another file
READ_BYTES = 1 << 20
COMPARED_BYTES = 32  # before a damaged byte
IGNORED = (".lock", ".tmp", ".cleaned", ".swap", ".deleted")


class DamagedByte(NamedTuple):
    """A byte that was changed in a file, with its former value and the bytes before it."""

    path: Path
    inode: int
    position: int
    was: int
    now: int
    before: bytes

    @classmethod
    def chosen(cls, rng: random.Random, path: Path) -> "DamagedByte":
        """Return a random byte of this file with one flipped bit. The file is not changed yet."""
        content = path.read_bytes()
        position = rng.randrange(len(content))
        was = content[position]
        before = content[max(0, position - COMPARED_BYTES) : position]
        return cls(path, path.stat().st_ino, position, was, was ^ 1 << rng.randrange(8), before)

    def is_there(self) -> bool:
        """Return whether the file still has the same inode and the damaged byte.

        The bytes before it are compared as well, since a truncated and rewritten journal may have
        the same value at this position.
        """
        try:
            if self.path.stat().st_ino != self.inode:
                return False
            known = self.before + bytes([self.now])
            return self.path.read_bytes()[: self.position + 1].endswith(known)
        except OSError:
            return False

    def write(self, value: int) -> None:
        fd = REAL["open"](self.path, 1)
        try:
            REAL["pwrite"](fd, bytes([value]), self.position)
        finally:
            REAL["close"](fd)


class FileDamage:
    """The base class of Conductor that damages bytes in files."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.damaged: list[DamagedByte] = []
        self._victim: VirtualNode | None = None

    def _nodes(self, target: str) -> list[VirtualNode]:
        raise NotImplementedError

    def _later(self, seconds: float, call: Any, *arguments: object) -> None:
        raise NotImplementedError

    def _say(self, words: str) -> None:
        raise NotImplementedError

    def _damage(self, fault: Fault) -> bool:
        """Flip bits in some files of the damaged machine, which the first fault chooses."""
        if self._victim is None:
            self._victim = next((n for n in self._nodes(fault.target) if n.is_alive), None)
        node = self._victim
        if node is None or not node.is_alive:
            return False
        node.has_damage = True
        if fault.amount == BEFORE_A_START:
            node.kill()
        by_kind: dict[str, list[Path]] = {}
        for path in sorted(Path(node.disk.path).rglob("*")):
            if path.is_file() and path.stat().st_size and not path.name.endswith(IGNORED):
                kind = "raft" if "raft" in path.parts else path.suffix or path.name
                by_kind.setdefault(kind, []).append(path)
        rng = self.cluster.random
        for kind in rng.sample(sorted(by_kind), min(BYTES_A_FAULT, len(by_kind))):
            self._flip_in(rng.choice(by_kind[kind]))
        if fault.amount == BEFORE_A_START:
            self._later(fault.seconds, node.start)
        return True

    def _flip_in(self, path: Path) -> None:
        byte = DamagedByte.chosen(self.cluster.random, path)
        byte.write(byte.now)
        self.damaged.append(byte)
        self._say(f"damaged byte {byte.position} of {path}: {byte.was} is {byte.now}")

    def mend_start(self) -> None:
        """Restore the damaged bytes that would prevent a start of the damaged machine."""
        node = self._victim
        if node is None:
            return
        for byte in reversed(self.damaged):  # one may have been damaged twice
            is_ours = "raft" in byte.path.parts or byte.path.parent == Path(node.disk.path)
            if is_ours and byte.is_there():
                byte.write(byte.was)

    def read_all_logs(self) -> None:
        """Read all logs of the damaged machine, and report damaged bytes that are read as good."""
        node = self._victim
        if node is None or node.broker is None:
            return
        for hosted in list(node.broker.replicas):
            try:
                believed = [*wrong_answers(hosted.log), *self._read_as_good(hosted.log)]
            except Exception as problem:
                self._say(f"{hosted!r} on {node.node_id}: {problem}")
                continue
            self.cluster.broken += [
                ("damage believed", f"{hosted!r} on {node.node_id}: {words}") for words in believed
            ]

    def _read_as_good(self, log: PartitionLog) -> Iterator[str]:
        """Yield a sentence for each damaged byte that a read of the log has just taken as good."""
        segments = {segment.file.path: segment for segment in log.segments}
        for byte in self.damaged:
            segment = segments.get(byte.path)
            if segment is None or not byte.is_there():
                continue
            first = segment.position_of(max(log.log_start_offset, segment.base_offset))
            if first is not None and first[0] <= byte.position < segment.size_bytes:
                yield f"byte {byte.position} of {byte.path.name} was read as {byte.now}"

    def is_repaired(self) -> bool:
        """Return whether all logs of the damaged machine are usable, and none is fetched anew."""
        broker = None if self._victim is None else self._victim.broker
        if broker is None:
            return True
        logs = [hosted.log for hosted in broker.replicas]
        is_sound = not any(log.is_failed or log.aborted_transactions.damaged for log in logs)
        return is_sound and not broker._logs.damaged.words

    def remove_damage(self) -> None:
        """Restore the damaged bytes that are still in their files."""
        for byte in reversed(self.damaged):  # one may have been damaged twice
            if byte.is_there():
                byte.write(byte.was)


def wrong_answers(log: PartitionLog) -> Iterator[str]:
    """Look up each batch of a log by offset and by time, and yield each wrong result as text.

    The lookups use each entry of an index. If the log detects damage, its error is raised.
    """
    start, end, lookup = log.log_start_offset, log.log_end_offset, log.segments.drop_cached_reads
    headers: list[BatchHeader] = []
    lookup()
    offset = start
    while offset < end:
        read = log.read(offset, READ_BYTES, upper_offset=end)
        if read.next_offset <= offset:
            break
        headers += (header for _, header in iterate_batches(read.data))
        offset = read.next_offset
    oldest_ms = -1
    for header in headers:
        lookup()
        data = log.read(max(header.base_offset, start), 1, upper_offset=end).data
        if decode_header(data).base_offset != header.base_offset:
            yield f"not found by its offset: {header.base_offset}"
        if header.max_timestamp > oldest_ms:
            oldest_ms = header.max_timestamp
            found: TimedBatch | int | None = start
            while isinstance(found, int):
                found = log.batch_not_older(oldest_ms, found)
            if found is None or found.header.base_offset != header.base_offset:
                yield f"not found by its time: {header.base_offset}"
    log.aborted_transactions.between(start, end)
