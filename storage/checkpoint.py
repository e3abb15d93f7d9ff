"""Small files that are replaced as a whole, in Kafka's formats.

A file is written to `<name>.tmp`, synced, and renamed over the old file, and then the directory is
synced. A crash therefore leaves either the old content or the new content. Reading returns typed
values or raises a CorruptFile with a remedy.
"""

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from ..runtime.fault_point import FaultPoint, no_fault_point
from ..wire.identifiers import TopicPartition
from .corrupt_file import CorruptFile
from .leader_epochs import EpochStart
from .segments.open_file import opened, write_all

TEMPORARY_SUFFIX = ".tmp"
CHECKPOINT_VERSION = 0
META_PROPERTIES_VERSION = 1
PARTITION_METADATA_VERSION = 0

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
PARTITION_METADATA_BYTES_MIN = 43  # the size without a checksum
PARTITION_METADATA_DAMAGE_MAX = 4  # bytes; ids of two topics differ in some twenty
META_PROPERTIES = "meta.properties"
_OFFSET_LINE = re.compile(r"\s*(\S+)\s+(\d+)\s+(-?\d+)\s*")
_CHECKSUM: TopicPartition = ("crc32c:", 0)
_EPOCH_LINE = re.compile(r"\s*(\d+)\s+(\d+)\s*")


_METADATA = re.compile(rb"(version:\s*(\d+)\s+topic_id:\s*([\w-]{22}))(?:\s+crc32c:\s*(\w{8}))?\s*")


class CorruptCheckpoint(CorruptFile):
    """The error of a checkpoint that cannot be read."""


def write_atomically(
    path: Path, content: bytes, *, fsync: bool = True, fault_point: FaultPoint = no_fault_point
) -> None:
    """Replace the file at `path` atomically by a file with `content`, or raise OSError.

    Without `fsync` the new content survives a crash of the process, but maybe not of the machine.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    fault_point("checkpoint.before-write")
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            write_all(fd, content)
            if fsync:
                fault_point("checkpoint.before-fsync")
                os.fsync(fd)
                fault_point("checkpoint.after-fsync")
        fault_point("checkpoint.before-rename")
        os.replace(temporary, path)
    except OSError:  # free the space of the incomplete file, since the disk may be full
        with suppress(OSError):
            temporary.unlink()
        raise
    fault_point("checkpoint.after-rename")
    if fsync:
        sync_directory(path.parent)
    fault_point("checkpoint.after-directory-fsync")


def sync_directory(directory: Path) -> None:
    """Sync the file names of a directory to the disk (blocks)."""
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


class _Checkpoint:
    """A text file with a version in its first line, a count, and this number of entries."""

    __slots__ = ("_fault_point", "path")

    def __init__(self, path: Path, fault_point: FaultPoint = no_fault_point) -> None:
        self.path = path
        self._fault_point = fault_point

    def _read(self, line_form: re.Pattern[str], remedy: str) -> Iterator[re.Match[str]]:
        """Yield the entries. A missing or empty file has no entries, as in Kafka.

        Raises CorruptCheckpoint.
        """
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return
        except UnicodeDecodeError:
            raise CorruptCheckpoint(self.path, "it is not UTF-8", remedy) from None
        if lines and lines[0] != str(CHECKPOINT_VERSION):
            raise CorruptCheckpoint(self.path, f"unknown version {lines[0][:40]!r}", remedy)
        if len(lines) > 1 and lines[1] != str(len(lines) - 2):
            problem = f"it announces {lines[1][:40]!r} entries and has {len(lines) - 2}"
            raise CorruptCheckpoint(self.path, problem, remedy)
        for line in lines[2:]:
            match = line_form.fullmatch(line)
            if match is None:
                raise CorruptCheckpoint(self.path, f"malformed line {line!r}", remedy)
            yield match

    def _write(self, entries: Iterable[str], *, fsync: bool) -> None:
        """Replace the file by one with these entries, or raise OSError."""
        lines = list(entries)
        text = "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""])
        write_atomically(self.path, text.encode(), fsync=fsync, fault_point=self._fault_point)


class OffsetCheckpoint(_Checkpoint):
    """A file with an offset for each partition, as lines of `topic partition offset`.

    The last line is an addition to Kafka's file. It has an invalid topic name, and its "offset" is
    the checksum of the other lines. Kafka ignores it like the line of a partition that no longer
    exists. Files of older releases lack the line.
    """

    __slots__ = ()

    def read(self) -> dict[TopicPartition, int]:
        """Return the offset of each partition. A missing file has none. Raises CorruptCheckpoint.

        Each of the four checkpoints may be deleted. Without it logs are read again (recovery
        points), are compacted again (cleaned offsets), start at their first segments (log starts),
        or get their high watermarks from their leaders.
        """
        remedy = "Delete it and start the broker again: it is rebuilt by reading the logs"
        offsets = {(m[1], int(m[2])): int(m[3]) for m in self._read(_OFFSET_LINE, remedy)}
        checksum = offsets.pop(_CHECKSUM, None)
        if checksum is not None and checksum != crc32c("\n".join(_lines(offsets)).encode()):
            raise CorruptCheckpoint(self.path, "its checksum does not fit", remedy)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int], *, fsync: bool = True) -> None:
        """Replace the file by one with these offsets, or raise OSError."""
        lines = _lines(offsets)
        if lines:
            lines += _lines({_CHECKSUM: crc32c("\n".join(lines).encode())})
        self._write(lines, fsync=fsync)


def _lines(offsets: Mapping[TopicPartition, int]) -> list[str]:
    return [f"{topic} {partition} {at}" for (topic, partition), at in offsets.items()]


class LeaderEpochCheckpoint(_Checkpoint):
    """The leader epochs of one log, as lines of `epoch start-offset`."""

    __slots__ = ()

    def __init__(self, directory: Path, fault_point: FaultPoint = no_fault_point) -> None:
        super().__init__(directory / LEADER_EPOCHS, fault_point)

    def read(self) -> list[EpochStart]:
        """Return the entries, or raise CorruptCheckpoint. A missing file has no entries."""
        remedy = "Delete it and start the broker again: batches bear their epochs"
        return [EpochStart(int(m[1]), int(m[2])) for m in self._read(_EPOCH_LINE, remedy)]

    def write(self, entries: Iterable[EpochStart], *, fsync: bool = True) -> None:
        """Replace the file by one with these entries, or raise OSError."""
        self._write((f"{entry.epoch} {entry.start_offset}" for entry in entries), fsync=fsync)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The cluster and node of a data directory (`meta.properties` version 1).

    `boot_id` is an addition to Kafka's file. If it has not changed at a restart of the broker, the
    machine has not lost power.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes
    boot_id: str = ""  # unknown, as in a directory of Kafka

    @classmethod
    def read(cls, directory: Path) -> "MetaProperties | None":
        """Return the directory's properties, or None if it has no such file.

        Raises CorruptCheckpoint.
        """
        path = directory / META_PROPERTIES
        remedy = "Restore it from a backup; without it nobody can tell whose data this is"
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise CorruptCheckpoint(path, "it is not UTF-8", remedy) from None
        lines = (line for line in text.splitlines() if line.strip() and line[0] not in "#!")
        properties = {
            _unescape(key.strip()): _unescape(value.strip())
            for key, _, value in (line.partition("=") for line in lines)
        }
        if properties.get("version") != str(META_PROPERTIES_VERSION):
            raise CorruptCheckpoint(path, f"its version is {properties.get('version')}", remedy)
        try:
            return cls(
                cluster_id=properties["cluster.id"],
                node_id=int(properties["node.id"]),
                directory_id=decode_uuid(properties["directory.id"]),
                boot_id=properties.get("boot.id", ""),
            )
        except (KeyError, ValueError) as problem:
            raise CorruptCheckpoint(path, f"bad or missing: {problem}", remedy) from None

    def write(self, directory: Path, fault_point: FaultPoint = no_fault_point) -> None:
        """Write these properties to the directory's file, or raise OSError."""
        properties = {
            "version": str(META_PROPERTIES_VERSION),
            "cluster.id": self.cluster_id,
            "node.id": str(self.node_id),
            "directory.id": encode_uuid(self.directory_id),
        }
        if self.boot_id:
            properties["boot.id"] = self.boot_id
        lines = ["#", *(f"{key}={_escape(value)}" for key, value in properties.items()), ""]
        content = "\n".join(lines).encode()
        write_atomically(directory / META_PROPERTIES, content, fault_point=fault_point)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The topic id of a partition's directory (`partition.metadata` version 0).

    A checksum follows Kafka's two lines. Kafka does not read it, and older releases wrote none.
    """

    topic_id: bytes

    @classmethod
    def read(cls, directory: Path) -> "PartitionMetadata | None":
        """Return the directory's metadata, or None for a missing file. Raises CorruptCheckpoint."""
        path = directory / PARTITION_METADATA
        remedy = "Delete it if the directory is surely this topic's; it is written again"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        match = _METADATA.fullmatch(content)
        is_right = match is not None and int(match[2]) == PARTITION_METADATA_VERSION
        if match is None or not is_right or match[4] not in (None, _checksum_of(match[1])):
            raise CorruptCheckpoint(path, f"it says {content[:80]!r}", remedy)
        return cls(decode_uuid(match[3].decode()))

    def write(
        self, directory: Path, fault_point: FaultPoint = no_fault_point, *, fsync: bool = True
    ) -> None:
        """Write this metadata to the directory's file, or raise OSError."""
        path = directory / PARTITION_METADATA
        write_atomically(path, self._encoded(), fsync=fsync, fault_point=fault_point)

    def is_nearly(self, content: bytes) -> bool:
        """Return whether a damaged file's content differs from this metadata in few bytes."""
        pairs = zip(content, self._encoded(), strict=False)
        wrong = sum(found != written for found, written in pairs)
        return len(content) >= PARTITION_METADATA_BYTES_MIN and (
            wrong <= PARTITION_METADATA_DAMAGE_MAX
        )

    def _encoded(self) -> bytes:
        text = f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {encode_uuid(self.topic_id)}"
        content = text.encode()
        return content + b"\ncrc32c: " + _checksum_of(content)


def _checksum_of(content: bytes) -> bytes:
    return b"%08x" % crc32c(content)


def encode_uuid(uuid: bytes) -> str:
    """Return sixteen bytes in Kafka's text form, base64url without padding."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """Return the sixteen bytes of Kafka's text form, or raise ValueError."""
    uuid = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid")
    return uuid


def _escape(value: str) -> str:
    """Return a value as java.util.Properties stores it. Values here are printable ASCII."""
    return re.sub(r"([\\:=#!])", r"\\\1", value)


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value)
