"""The invariants of the files of a cluster that was stopped cleanly.

All replicas have byte for byte the same batches, from the highest log start to the log end. Indexes
and producer snapshots are derived from the batches, so they equal the files that a replay of the
.log files alone makes.
"""

import base64
import shutil
from pathlib import Path

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.record_batch import iterate_batches

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


def partition_directories(node: Path, topic: str) -> dict[str, Path]:
    """Return the directories of a topic's partitions on a node, by name."""
    return {
        path.name: path
        for path in sorted(node.iterdir())
        if path.is_dir() and path.name.rpartition("-")[0] == topic and path.name[-1].isdigit()
    }


def batches(directory: Path) -> dict[int, bytes]:
    """Return every batch of a log by its base offset."""
    found: dict[int, bytes] = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        end = 0
        for position, header in iterate_batches(data):
            end = position + header.size_bytes
            found[header.base_offset] = data[position:end]
        assert end == len(data), f"{segment} ends inside a batch"
    return found


def assert_replicas_equal(nodes: list[Path], topic: str) -> int:
    """Assert that all replicas have the same batches, and return how many batches were compared."""
    compared = 0
    names = {name for node in nodes for name in partition_directories(node, topic)}
    for name in sorted(names):
        replicas = [batches(node / name) for node in nodes if (node / name).is_dir()]
        start = max(min(replica, default=0) for replica in replicas)
        kept = [{o: b for o, b in replica.items() if o >= start} for replica in replicas]
        for other in kept[1:]:
            assert kept[0].keys() == other.keys(), f"{name}: replicas end differently"
            for offset, batch in kept[0].items():
                assert other[offset] == batch, f"{name}: replicas differ at offset {offset}"
        compared += len(kept[0])
    return compared


def assert_derived_files_follow(directory: Path, work: Path, config: LogConfig) -> int:
    """Assert that a replay of one replica's .log files makes its other files, and count them.

    A recovery writes a producer snapshot at the end offset that the log has then, which may be
    within a segment. Such a snapshot is compared with a replay up to the same offset.
    """
    copy = _replayed(directory, work, config, up_to=None)
    compared = 0
    for file in sorted(directory.iterdir()):
        if file.suffix not in DERIVED:
            continue
        rebuilt = copy / file.name
        if file.suffix == ".snapshot" and not rebuilt.exists():
            rebuilt = _replayed(directory, work, config, up_to=int(file.stem)) / file.name
        assert rebuilt.exists(), f"{file} does not come out of a replay"
        assert rebuilt.read_bytes() == file.read_bytes(), f"{file} differs from its replay"
        compared += 1
    shutil.rmtree(work)
    return compared


def _replayed(directory: Path, work: Path, config: LogConfig, *, up_to: int | None) -> Path:
    copy = work / str(up_to) / directory.name
    shutil.copytree(directory, copy)
    for file in copy.iterdir():
        if file.suffix in DERIVED:
            file.unlink()
    topic, _, partition = directory.name.rpartition("-")
    log = PartitionLog.open(
        copy,
        topic=topic,
        partition=int(partition),
        topic_id=_topic_id((directory / "partition.metadata").read_text()),
        config=config,
        now_ms=max(int(f.stat().st_mtime * 1000) for f in directory.iterdir()),
    )
    if up_to is not None:
        log.truncation.truncate_to(up_to)
    log.close()
    return copy


def _topic_id(metadata: str) -> bytes:
    line = next(x for x in metadata.splitlines() if x.startswith("topic_id: "))
    text = line.removeprefix("topic_id: ")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
