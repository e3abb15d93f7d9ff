"""Test that snapshots made in slices are consistent, run one at a time, and delay no commit."""

from pathlib import Path
from threading import Thread

import pytest

from oncelog.coordinator.raft.wal.disk import DirectoryDisk
from oncelog.runtime.sliced_work import Steps

from ...simulation.raft_simulation import Cluster, Machine


class Watched(Machine):
    """A state machine that records how many snapshots run at the same time."""

    under_way: list[int] = []  # noqa: RUF012
    most = 0
    made = 0

    def snapshot_steps(self) -> Steps[list[bytes]]:
        steps = super().snapshot_steps()

        def watched() -> Steps[list[bytes]]:
            Watched.under_way.append(id(self))
            Watched.most = max(Watched.most, len(Watched.under_way))
            pieces = yield from steps
            Watched.under_way.remove(id(self))
            Watched.made += 1
            return pieces

        return watched()


def test_raft_groups_of_a_process_take_snapshots_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the journal starts a new segment, all groups are due for a snapshot."""
    monkeypatch.setattr("tests.simulation.raft_simulation.Machine", Watched)
    monkeypatch.setattr(Watched, "under_way", [])
    monkeypatch.setattr(Watched, "most", 0)
    monkeypatch.setattr(Watched, "made", 0)
    cluster = Cluster(7, size=1, groups=5)
    assert cluster.run(5, cluster.leaders_settled)
    for _ in range(60):
        for group in cluster.groups:
            cluster.submit(1, group, size=500)
        cluster.run(0.01)
    cluster.run(1)
    assert Watched.made >= 5
    assert Watched.most == 1
    cluster.check_end()


def test_raft_entries_are_applied_while_a_snapshot_is_taken() -> None:
    """The snapshot has the state at its begin, and the log keeps all later entries."""
    cluster = Cluster(8, size=1, groups=1)
    assert cluster.run(5, cluster.leaders_settled)
    for _ in range(400):
        cluster.submit(1, 0)
        cluster.run(0.001)
    acknowledged = len(cluster.history.acknowledged)
    assert cluster.nodes[1].engine.groups[0].status().log_start > 1
    cluster.crash(1)
    cluster.start(1)
    assert cluster.run(5, cluster.leaders_settled)
    assert len(cluster.nodes[1].machines[0].commands) >= acknowledged
    cluster.check_end()


def test_raft_write_does_not_wait_for_the_preparation_of_the_next_segment(tmp_path: Path) -> None:
    """A commit that waited for the preparation took twice as long on a busy disk."""
    begun: list[str] = []
    disk = DirectoryDisk(tmp_path, lambda name: begun.append(name))
    disk.open()
    disk.ensure_segment(1, 1 << 16)
    with disk._lock:  # held while a segment is made and synced
        commit = Thread(target=lambda: (disk.write(1, 0, b"x"), disk.sync(1)))
        commit.start()
        commit.join(10)
        assert not commit.is_alive()
        disk.delete_segment(1)
    assert "raft.journal.after-sync" in begun
    disk.close()


class Long(Machine):
    """A state machine that applies each command in several steps.

    It fails if another command, a snapshot or a restore begins between the steps.
    """

    is_halfway = False

    def apply_steps(self, command: bytes, index: int, term: int) -> Steps[int]:
        assert not self.is_halfway, "two at once"
        self.is_halfway = True
        yield
        result = super().apply(command, index, term)
        yield
        self.is_halfway = False
        return result

    def snapshot_steps(self) -> Steps[list[bytes]]:
        assert not self.is_halfway, "half a command in a snapshot"
        return super().snapshot_steps()

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        assert not self.is_halfway, "replaced in the middle of a command"
        return super().restore_steps(snapshot)


@pytest.mark.parametrize("seed", range(3))
def test_raft_command_applied_in_steps_is_never_visible_partly_applied(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Neither a snapshot nor the next command may see the state in the middle of a command."""
    monkeypatch.setattr("tests.simulation.raft_simulation.Machine", Long)
    cluster = Cluster(seed, size=3, groups=2)
    assert cluster.run(10, cluster.leaders_settled)
    cluster.crash(3)
    for _ in range(80):
        for group in cluster.groups:
            leader = cluster.leader(group)
            if leader is not None:
                cluster.submit(leader, group, size=400)
        cluster.run(0.02)
    cluster.start(3)
    cluster.run(2)
    cluster.check_end()
