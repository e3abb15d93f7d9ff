"""Test that a transaction shard can be read from a node's disk, as the node would load it."""

from pathlib import Path

import pytest

from oncelog.coordinator.raft.library import COMMAND
from oncelog.coordinator.raft.wal.disk import DirectoryDisk
from oncelog.coordinator.raft.wal.journal import Journal
from oncelog.coordinator.raft.wal.records import RaftSnapshot, encode_snapshot
from oncelog.coordinator.raft.wal.recovery import recover
from oncelog.coordinator.transactions.commands import (
    SetShardCount,
    Write,
    WriteRecords,
    encode_transaction_command,
)
from oncelog.coordinator.transactions.record import TransactionRecord
from oncelog.coordinator.transactions.shard import TransactionShard
from oncelog.coordinator.transactions.states import TransactionState
from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.layout import ClusterFile, NodeEntry
from oncelog.deploy.inspect.transaction_log import UNDECIDED, shard_log
from oncelog.node.transactions.shard_journal import UnreadableJournal, read_shard

SHARD, GROUP, TERM = 1, 2, 4
VOTERS = (1, 2, 3)
EMPTY = TransactionRecord(
    producer_id=7,
    producer_epoch=0,
    timeout_ms=1000,
    state=TransactionState.EMPTY,
    last_update_ms=5,
)
ONGOING = EMPTY._replace(
    state=TransactionState.ONGOING,
    start_ms=6,
    last_update_ms=6,
    partitions=frozenset({("t", 0), ("t", 1), ("u", 3)}),
)


def command(*writes: Write, term: int = TERM) -> bytes:
    return COMMAND + encode_transaction_command(WriteRecords(term, writes))


FIRST = Write.after("one", None, EMPTY)
SECOND = Write.after("one", EMPTY._replace(version=2), ONGOING)
HISTORY = (
    COMMAND + encode_transaction_command(SetShardCount(TERM, 4)),
    command(FIRST),
    command(SECOND),
    command(FIRST),  # decided by a record that has changed since
    command(SECOND, term=3),  # of a deposed leader
)


def write_journal(
    directory: Path, *entries: bytes, node_id: int = 1, first: int = 1, snapshot: bytes = b""
) -> None:
    """Write the journal of a node with these entries. Its last segment ends in zeros."""
    disk = DirectoryDisk(directory)
    disk.open()
    recovered = recover(disk, node_id=node_id, voters=VOTERS)
    journal = Journal(disk, recovered, node_id=node_id, voters=VOTERS, segment_bytes=1 << 16)
    journal.add_group(GROUP)
    if snapshot:
        disk.prepare_snapshot(GROUP, snapshot)
        disk.publish_snapshot(GROUP)
        journal.append_reset(GROUP, first - 1, TERM)
    journal.append_term(GROUP, TERM, 1)
    for index, entry in enumerate(entries, start=first):
        journal.append_entry(GROUP, index, TERM, entry)
    batch = journal.take()
    assert batch is not None
    journal.write(batch)
    disk.close()


def read(directory: Path, node_id: int = 1):
    return read_shard(directory, node_id=node_id, voters=VOTERS, shard=SHARD)


def test_shard_journal_lists_every_entry_with_its_outcome(tmp_path):
    write_journal(tmp_path, *HISTORY)
    found = read(tmp_path)
    assert [(e.index, e.transactional_id, e.note) for e in found.entries] == [
        (1, None, "the cluster has 4 shards"),
        (2, "one", ""),
        (3, "one", ""),
        (4, "one", "refused: the record has changed"),
        (5, "one", "refused: it was decided in term 3, and this is 4"),
    ]
    value = found.entries[2].value
    assert value is not None
    assert value.partitions == (("t", (0, 1)), ("u", (3,)))
    assert (value.producer_id, value.state, value.start_ms) == (7, 1, 6)
    assert found.end == (TERM, 5)


def test_shard_journal_record_of_a_snapshot_has_the_index_of_its_entry(tmp_path):
    shard = TransactionShard()
    for index, entry in enumerate(HISTORY[:2], start=1):
        shard.apply(entry[1:], index, TERM)
    snapshot = encode_snapshot(GROUP, RaftSnapshot(2, TERM, shard.snapshot()))
    write_journal(tmp_path, *HISTORY[2:], first=3, snapshot=snapshot)
    found = read(tmp_path)
    assert [(e.index, e.term, e.transactional_id) for e in found.entries] == [
        (2, -1, "one"), (3, TERM, "one"), (4, TERM, "one"), (5, TERM, "one"),
    ]  # fmt: skip
    assert found.has(1, 99) and found.has(5, TERM) and not found.has(5, TERM + 1)
    (tmp_path / f"group-{GROUP}.snapshot").write_bytes(snapshot[:-1])
    with pytest.raises(UnreadableJournal, match="damaged"):
        read(tmp_path)


def test_shard_journal_reader_changes_no_file_and_stops_at_half_a_frame(tmp_path):
    write_journal(tmp_path, *HISTORY[:3])
    write_journal(tmp_path, HISTORY[3], first=4)
    (segment,) = tmp_path.glob("*.wal")
    whole = segment.read_bytes()
    end = len(whole.rstrip(b"\0"))
    segment.write_bytes(whole[: end - 3] + bytes(len(whole) - end + 3))  # like an unfinished write
    before = segment.read_bytes()
    assert [e.index for e in read(tmp_path).entries] == [1, 2, 3]
    assert segment.read_bytes() == before
    assert sorted(f.name for f in tmp_path.iterdir()) == sorted([".lock", segment.name])


def test_shard_journal_of_a_running_node_is_readable(tmp_path):
    write_journal(tmp_path, *HISTORY)
    owner = DirectoryDisk(tmp_path)
    owner.open()  # holds the lock
    try:
        assert len(read(tmp_path).entries) == 5
    finally:
        owner.close()


def test_shard_journal_of_another_node_is_refused(tmp_path):
    write_journal(tmp_path, *HISTORY)
    with pytest.raises(UnreadableJournal, match="belongs to node 1"):
        read(tmp_path, node_id=2)
    with pytest.raises(UnreadableJournal, match="no transaction shard 3"):
        read_shard(tmp_path, node_id=1, voters=VOTERS, shard=3)
    with pytest.raises(UnreadableJournal, match="no transaction shard"):
        read(tmp_path / "nothing")


# -- `oncelog txn log` over several nodes' copies


@pytest.fixture
def data(tmp_path) -> Path:
    nodes = [NodeEntry(i, "127.0.0.1", 1000 + i) for i in VOTERS]
    layout.write(tmp_path, ClusterFile("AAAA", "/tmp/oncelog-x", "local", nodes, {}))
    for node_id, count in ((1, 2), (2, 3), (3, 2)):
        raft = layout.node_directory(tmp_path, node_id) / "raft"
        write_journal(raft, *HISTORY[:count], node_id=node_id)
    return tmp_path


def test_shard_journal_entry_on_only_one_node_is_shown_as_undecided(data):
    log = shard_log(data, SHARD, None)
    assert log.summary == "node 2's copy: up to entry 3"
    assert [row["note"] for row in log.rows()] == ["the cluster has 4 shards", None, UNDECIDED]
    row = log.rows()[1]
    assert (row["state"], row["producer"], row["epoch"], row["partitions"]) == ("Empty", 7, 0, [])
    assert len(shard_log(data, SHARD, 1).rows()) == 2


def test_shard_journal_needs_one_readable_copy(data):
    for node_id in (1, 3):
        for file in (layout.node_directory(data, node_id) / "raft").glob("*.wal"):
            file.write_bytes(b"junk" * 100)
    assert {row["note"] for row in shard_log(data, SHARD, None).rows()} == {UNDECIDED}
    with pytest.raises(Failure, match="No copy can be read"):
        shard_log(data, SHARD, 3)


def test_shard_journal_of_a_missing_shard_or_node_is_refused(data, tmp_path_factory):
    with pytest.raises(Failure, match="shards 0 to 3, and no 4"):
        shard_log(data, 4, None)
    with pytest.raises(Failure):
        shard_log(data, SHARD, 9)
    with pytest.raises(Failure, match="There is no cluster"):
        shard_log(tmp_path_factory.mktemp("none"), SHARD, None)
