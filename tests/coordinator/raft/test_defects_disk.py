"""Test the defects D2, D4 and D5 of PySyncObj, and that our journal does not have them.

Each defect concerns the data on the disk. It is first shown on the unmodified library.
"""

import contextlib
import gc
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pysyncobj.journal import FileJournal
from pysyncobj.node import Node

from oncelog.coordinator.raft import CorruptJournal
from oncelog.coordinator.raft.wal.disk import DirectoryDisk
from oncelog.coordinator.raft.wal.journal import Journal
from oncelog.coordinator.raft.wal.recovery import RecoveredJournal, recover

from ...simulation.raft_simulation import Cluster, started
from .stock import StockNetwork
from .wal.test_journal import commit

# The stock library leaves files open.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

STOCK_WRITER = """
import os, sys, time
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport
directory, mode = sys.argv[1:]
class Items(SyncObj):
    def __init__(self):
        conf = SyncObjConf(autoTick=False, journalFile=directory + "/journal", fullDumpFile=directory + "/dump",
            appendEntriesUseBatch=False, logCompactionMinEntries=10**9, logCompactionMinTime=10**9)
        super().__init__(Node("A"), [], conf, transport=Transport(None, None, []))
        self.items, self.blob = [], []
    @replicated
    def append(self, item): self.items.append(item)
    @replicated
    def ballast(self, size): self.blob.append(os.urandom(size))
items, begin = Items(), time.monotonic()
while not items._isLeader() or items.raftLastApplied < items.raftCommitIndex or time.monotonic() - begin < 0.3:
    items.doTick(0.01)
if mode == "write":
    acknowledged = 0
    def callback(result, error):
        global acknowledged
        acknowledged += error == 0
    for _ in range(8): items.ballast(1 << 20)
    for k in range(500): items.append(k, callback=callback)
    while acknowledged < 500: items.doTick(0)
    items.forceLogCompaction()
    items.doTick(0)
    for k in range(500, 1500): items.append(k, callback=callback)
    while acknowledged < 1500: items.doTick(0.001)
    print(acknowledged, flush=True)
    os.kill(os.getpid(), 9)
print(len(items.items), flush=True)
os._exit(0)
"""  # noqa: E501

OUR_WRITER = """
import asyncio, json, os, random, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from oncelog.coordinator.raft import RaftEngine, RaftSettings
directory, mode = sys.argv[1:]
class Items:
    def __init__(self): self.items, self.blob = [], os.urandom(6 << 20).hex()
    def apply(self, command, index, term): self.items.append(command.decode())
    def snapshot_steps(self): return self.steps([json.dumps([self.blob, self.items]).encode()])
    def restore_steps(self, snapshot):
        self.blob, self.items = json.loads(bytes(snapshot))
        yield
    def steps(self, pieces):
        yield
        return pieces
async def main():
    items = Items()
    engine = RaftEngine(node_id=1, voters=[1], directory=Path(directory),
        send=lambda peer, frame: False, loop=asyncio.get_running_loop(),
        executor=ThreadPoolExecutor(3), random=random.Random(1),
        settings=RaftSettings(snapshot_entries=500, retained_entries=0))
    group = engine.add_group(0, items)
    await engine.start()
    while not group.is_leader: await asyncio.sleep(0.005)
    if mode == "write":
        await asyncio.gather(*(group.submit(b"%d" % k) for k in range(500)))
        await asyncio.gather(*(group.submit(b"%d" % k) for k in range(500, 1500)))
        print(1500, flush=True)
        os.kill(os.getpid(), 9)
    print(len(items.items), flush=True)
    os._exit(0)
asyncio.run(main())
"""


def killed_and_restarted(script: str, directory: Path) -> tuple[int, int]:
    """Return how many commands were acknowledged before a SIGKILL, and how many survived it."""
    counts = []
    for mode in ("write", "read"):
        command = [sys.executable, "-c", script, str(directory), mode]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        counts.append(int(done.stdout))
        end = time.monotonic() + 30
        while mode == "write" and script is STOCK_WRITER and not (directory / "dump").exists():
            assert time.monotonic() < end, "the orphaned child does not finish the dump"
            time.sleep(0.02)
    return counts[0], counts[1]


def test_pysyncobj_killed_while_dumping_loses_the_journal_tail(tmp_path: Path) -> None:
    """A SIGKILL during the dump of a forked child loses the last entries of the journal (D2)."""
    acknowledged, present = killed_and_restarted(STOCK_WRITER, tmp_path)
    assert acknowledged == 1_500
    assert present < acknowledged, "the stock library has been mended"


def test_raft_snapshot_keeps_later_journal_entries(tmp_path: Path) -> None:
    """Our engine keeps all entries after the snapshot in its journal (defect D2)."""
    assert killed_and_restarted(OUR_WRITER, tmp_path) == (1_500, 1_500)


class Killed(BaseException):
    """The error that stands for a kill of the process.

    All writes before it are in the page cache.
    """


def test_pysyncobj_killed_in_a_compaction_loses_entries(tmp_path: Path) -> None:
    """PySyncObj clears the journal, and then writes the remaining entries again (defect D2b)."""
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    for index in range(1, 2_001):
        journal.add(b"\0" + b"y" * 200, index, 1)
    add, count = journal.add, 0

    def counted(*entry):
        nonlocal count
        count += 1
        if count == 200:
            raise Killed
        add(*entry)

    journal.add = counted
    with pytest.raises(Killed):
        journal.deleteEntriesTo(1_000)
    journal._destroy()
    journal = FileJournal(path)
    assert len(journal) < 1_000, "the stock library has been mended"
    journal._destroy()


def our_journal(directory: Path) -> tuple[DirectoryDisk, RecoveredJournal, Journal]:
    disk = DirectoryDisk(directory)
    disk.open()
    try:
        recovered = recover(disk, node_id=1, voters=(1,))
    except BaseException:
        disk.close()
        raise
    journal = Journal(disk, recovered, node_id=1, voters=(1,), segment_bytes=1 << 14)
    journal.add_group(0)
    return disk, recovered, journal


@pytest.mark.parametrize("point", range(0, 21, 2))
def test_raft_journal_killed_at_any_point_of_a_compaction_loses_no_entry(
    tmp_path: Path, point: int
) -> None:
    """Kill the process at every second disk operation of the compaction (defect D2b)."""
    count, compacting = 0, False

    def fault_point(name: str) -> None:
        nonlocal count
        count += compacting
        if count > point:
            raise Killed

    disk, _, journal = our_journal(tmp_path)
    disk._fault_point = fault_point
    for index in range(1, 301):
        journal.append_entry(0, index, 1, b"y" * 200)
    commit(journal)
    compacting = True
    with contextlib.suppress(Killed):
        journal.append_base(0, 200, 1)
        for index in range(301, 401):
            journal.append_entry(0, index, 1, b"z" * 200)
        commit(journal)
        journal.delete(journal.deletable())
    disk.close()
    disk, recovered, _ = our_journal(tmp_path)
    entries = [index for _, index, _ in recovered.groups[0].log()]
    assert entries[0] in (1, 201)
    assert entries == list(range(entries[0], entries[-1] + 1))
    assert entries[-1] >= 300
    disk.close()


def test_pysyncobj_without_a_dump_file_loses_all_entries(
    stock_network: Callable[..., StockNetwork], tmp_path: Path
) -> None:
    """PySyncObj accepts a configuration with a journal but no dump file (defect D5)."""
    net = stock_network(
        5,
        conf_of=lambda node: {"journalFile": str(tmp_path / node)},
        logCompactionMinTime=20,
    )
    leader = net.elect()
    outcomes: list[int] = []
    for k in range(50):
        net.objects[leader].append(k, callback=lambda result, error: outcomes.append(error))
    net.run(2)
    assert outcomes == [0] * 50
    net.run(21)
    for node in net.nodes:
        net.kill(node)
    for node in net.nodes:
        net.start(node)
    net.run(10)
    assert all(o.items == [] for o in net.objects.values()), "the stock library has been mended"


def test_raft_commands_acknowledged_before_a_power_cut_of_all_nodes_are_kept() -> None:
    """The cluster runs for a minute before the power cut (defect D5)."""
    cluster, leader = started(5)
    for _ in range(50):
        cluster.submit(leader, 0)
    cluster.run(2)
    assert len(cluster.history.acknowledged) == 50
    cluster.run(60)
    for i in cluster.ids:
        cluster.crash(i, power=True)
    cluster.check_end()


def test_pysyncobj_cannot_start_after_a_torn_write_and_reads_damaged_entries(
    tmp_path: Path,
) -> None:
    """Only the first pages were written before the power cut, or a bit is flipped (defect D4a)."""
    path = tmp_path / "journal"
    journal = FileJournal(str(path))
    entries = [(b"\0" + b"y" * 200, index, 1) for index in range(1, 60)]
    for entry in entries:
        journal.add(*entry)
    journal._destroy()
    written = path.read_bytes()
    path.write_bytes(written[:8_192] + bytes(len(written) - 8_192))
    with pytest.raises(struct.error):
        FileJournal(str(path))
    gc.collect()  # the dropped journal leaves its file open
    flipped = bytearray(written)
    flipped[5_000] ^= 0x41
    path.write_bytes(flipped)
    journal = FileJournal(str(path))
    assert list(journal) != entries, "the stock library has a checksum now"
    journal._destroy()


def test_raft_journal_with_a_torn_tail_loses_no_synced_entry(tmp_path: Path) -> None:
    """The tail is cut at 200 random positions, and followed by zeros or garbage (defect D4)."""
    rng = random.Random(1)
    disk, _, journal = our_journal(tmp_path)
    for index in range(1, 30):
        journal.append_entry(0, index, 1, b"y" * 50)
    journal.append_term(0, 9, 2)
    commit(journal)
    path = Path(disk.segment_name(1))
    synced = path.read_bytes()
    for index in range(30, 60):
        journal.append_entry(0, index, 9, b"z" * 50)
    commit(journal)
    disk.close()
    written = path.read_bytes()
    begin = len(synced.rstrip(b"\0"))
    end = len(written.rstrip(b"\0"))
    for _ in range(200):
        cut = rng.randrange(begin, end)
        junk = rng.randbytes(rng.choice([0, 3, 40, 300]))
        torn = bytearray(written[:cut] + bytes(len(written) - cut))
        torn[cut : cut + len(junk)] = junk
        if torn == written:
            continue
        path.write_bytes(torn)
        disk, recovered, _ = our_journal(tmp_path)
        state = recovered.groups[0].state
        assert (state.end_index, state.term, state.voted_for) == (29, 9, 2)
        disk.close()
        assert path.read_bytes() == synced, "what was torn is overwritten with zeros"


def test_raft_journal_damaged_in_the_middle_refuses_to_start(tmp_path: Path) -> None:
    """A flipped bit in synced entries must not be taken for a torn tail (defect D4)."""
    disk, _, journal = our_journal(tmp_path)
    for index in range(1, 30):
        journal.append_entry(0, index, 1, b"y" * 50)
        commit(journal)
    disk.close()
    path = Path(disk.segment_name(1))
    damaged = bytearray(path.read_bytes())
    damaged[700] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptJournal, match=r"000000000001\.wal: synced bytes .* move its raft"):
        our_journal(tmp_path)
    assert path.read_bytes() == damaged, "nothing was changed"


def test_pysyncobj_that_loses_its_vote_file_votes_twice(
    stock_network: Callable[..., StockNetwork], tmp_path: Path
) -> None:
    """PySyncObj does not sync its vote file, and ignores an unreadable one (defect D4b)."""
    net = stock_network(1, conf_of=lambda node: {"journalFile": str(tmp_path / node)})
    votes: list[str] = []

    def keep(source: str, target: str, message: dict) -> bool:
        if message["type"] == "response_vote":
            votes.append(target)
        return False

    net.keep = keep
    request = {"type": "request_vote", "term": 7, "last_log_index": 9, "last_log_term": 1}
    net.transports["B"]._onMessageReceived(Node("A"), request)
    net.kill("B")
    (tmp_path / "B.meta").write_bytes(b"")  # the result of a power cut
    net.start("B")
    net.transports["B"]._onMessageReceived(Node("C"), request)
    assert votes == ["A", "C"], "the stock library has been mended"


def test_raft_vote_is_sent_only_after_the_sync_of_the_vote() -> None:
    """Nodes lose power at random during elections, and none votes twice in a term (D4b)."""
    for seed in range(6):
        cluster = Cluster(seed, size=3, groups=1)
        for _ in range(12):
            cluster.run(cluster.random.uniform(0, 0.12))
            for i in cluster.random.sample(cluster.ids, cluster.random.randrange(4)):
                if i in cluster.nodes:
                    cluster.crash(i, power=True)
            for i in cluster.ids:
                if i not in cluster.nodes:
                    cluster.start(i)
        cluster.check_end()


def test_pysyncobj_leader_without_followers_acknowledges_after_a_power_cut(
    stock_network: Callable[..., StockNetwork], tmp_path: Path
) -> None:
    """The stored commit index is beyond the end of the journal after the power cut (defect D4c)."""
    net = stock_network(1, conf_of=lambda node: {"journalFile": str(tmp_path / node)})
    leader = net.elect()
    for k in range(100):
        net.objects[leader].append(k)
    net.run(3)
    for node in net.nodes:
        net.kill(node)
        journal = FileJournal(str(tmp_path / node))
        journal.deleteEntriesFrom(len(journal) - 60)
        journal._destroy()
    for node in net.nodes:
        net.start(node)
    assert net.run(10, net.leader)
    leader = net.leader()
    assert leader is not None
    net.isolate(leader)
    outcomes: list[int] = []
    for k in range(20):
        net.objects[leader].append(k, callback=lambda result, error: outcomes.append(error))
    net.run(0.3)
    assert outcomes.count(0) == 20, "the stock library has been mended"


def test_raft_leader_that_is_isolated_acknowledges_no_command() -> None:
    """Our engine does not store the commit index, but learns it from a majority (defect D4c)."""
    cluster, leader = started()
    for _ in range(100):
        cluster.submit(leader, 0)
    cluster.run(2)
    for i in cluster.ids:
        cluster.crash(i, power=True)
    cluster.heal()
    assert cluster.run(5, cluster.leaders_settled)
    leader = cluster.led_by()
    cluster.isolate(leader)
    alone = {cluster.submit(leader, 0) for _ in range(20)}
    cluster.run(3)
    assert not alone & cluster.history.acknowledged
    assert alone <= cluster.history.unknown
    cluster.check_end()
