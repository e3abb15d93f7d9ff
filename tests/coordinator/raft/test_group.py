"""Test commands, snapshots and failures of a simulated Raft cluster."""

from typing import Any

import msgpack
import pytest

from oncelog.coordinator.raft import OutcomeUnknown, RaftSettings
from oncelog.coordinator.raft.messages import SnapshotChunk, decode_frame, encode_frame, split
from oncelog.runtime.sliced_work import Steps

from ...simulation.raft_simulation import Cluster, Machine, Violation, started


def test_raft_followers_apply_committed_entries_without_waiting_for_a_heartbeat() -> None:
    """A new commit index is sent immediately, not only with the next heartbeat."""
    cluster, leader = started()
    cluster.run(1)
    command = cluster.submit(leader, 0)
    machines = [node.machines[0] for node in cluster.nodes.values()]
    begin = cluster.world.now
    assert cluster.run(1, lambda: all(command in machine.commands for machine in machines))
    assert cluster.world.now - begin < 0.03


def test_raft_submit_gets_an_outcome_within_its_timeout() -> None:
    """The timeout expires if no majority answers."""
    cluster, leader = started()
    for i in cluster.ids:
        if i != leader:
            cluster.crash(i)
    outcomes: list[Exception | None] = []
    begin = cluster.world.now
    cluster.nodes[leader].engine.groups[0].propose(b"0-x", 300, lambda r, e: outcomes.append(e))
    assert cluster.run(3, lambda: bool(outcomes))
    assert isinstance(outcomes[0], OutcomeUnknown)
    assert cluster.world.now - begin < 0.45


def test_raft_proposals_pending_at_a_stop_have_an_unknown_outcome() -> None:
    """The outcome is unknown, since the entry may have been sent."""
    cluster, leader = started()
    outcomes: list[Exception | None] = []
    engine = cluster.nodes[leader].engine
    engine.groups[0].propose(b"0-x", 300, lambda r, e: outcomes.append(e))
    engine.halt()
    assert isinstance(outcomes[0], OutcomeUnknown)
    engine.groups[0].propose(b"0-y", 300, lambda r, e: outcomes.append(e))
    assert "not running" in str(outcomes[1])


def test_raft_engine_with_a_failing_disk_stops_with_the_error() -> None:
    """After a failed fdatasync earlier writes are uncertain, so the sync is not repeated."""
    cluster, leader = started()
    node = cluster.nodes[leader]

    def sync(number: int) -> None:
        raise OSError(5, "Input/output error")

    cluster.disks[leader].sync = sync  # type: ignore[method-assign]
    command = cluster.submit(leader, 0)
    cluster.world.run(0.1)
    assert len(cluster.fatal) == 1
    assert "Input/output error" in cluster.fatal[0]
    assert command in cluster.history.unknown | cluster.history.acknowledged
    assert not node.engine.groups[0].is_leader


def test_raft_entry_that_is_committed_is_never_replaced() -> None:
    """A message that replaces a committed entry proves an error, so the node ends."""
    cluster, leader = started()
    cluster.submit(leader, 0)
    cluster.run(1)
    follower = next(i for i in cluster.ids if i != leader)
    group = cluster.nodes[follower].engine.groups[0]
    term = group.term + 1
    forged = msgpack.packb([[0, 1, term, 0, 0, 0, [[term, b"\0forged"]]]])
    cluster.nodes[follower].engine.receive(leader, forged)
    assert "wants to replace the committed entry 1" in cluster.fatal[0]


def lagging(cluster: Cluster, leader: int, commands: int = 120) -> int:
    """Isolate a follower until it needs a snapshot, and return it."""
    behind = next(i for i in cluster.ids if i != leader)
    cluster.isolate(behind)
    for _ in range(commands):
        cluster.submit(leader, 0)
        cluster.run(0.01)
    assert cluster.nodes[leader].engine.groups[0].status().log_start > 20
    return behind


def test_raft_follower_that_lags_gets_the_snapshot_in_chunks() -> None:
    """Each chunk has at most the configured size. Later entries are then sent from the log."""
    cluster, leader = started()
    behind = lagging(cluster, leader)
    sizes: list[int] = []
    deliver = cluster._deliver

    def watched(source: int, target: int, frame: bytes) -> None:
        for _, message in decode_frame(frame):
            if isinstance(message, SnapshotChunk):
                sizes.append(len(message.data))
        deliver(source, target, frame)

    cluster.network._deliver = watched
    cluster.network.cut.clear()
    cluster.run(2)
    assert max(sizes) == cluster.settings.snapshot_chunk_bytes
    assert len(sizes) > 4
    machines = [cluster.nodes[i].machines[0].commands for i in (leader, behind)]
    assert machines[0] == machines[1]
    cluster.check_end()


class Choosy(Machine):
    """A state machine that cannot read snapshots while `refuses` is set, like an older release."""

    refuses = False

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        yield
        if Choosy.refuses:
            raise ValueError("format 2 is not known")
        yield from super().restore_steps(snapshot)


def test_raft_snapshot_that_cannot_be_loaded_is_not_acknowledged_and_stops_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The follower does not try again and again (defect D10).

    The follower continues when it is started with a release that can read the snapshot.
    """
    monkeypatch.setattr("tests.simulation.raft_simulation.Machine", Choosy)
    monkeypatch.setattr(Choosy, "refuses", True)
    cluster, leader = started()
    behind = lagging(cluster, leader)
    cluster.network.cut.clear()
    with pytest.raises(Violation) as stopped:
        cluster.run(3)
    words = str(stopped.value)
    assert f"node {behind}:" in words and "sent by the leader" in words
    assert "format 2 is not known" in words and "older version" in words
    cluster.fatal.clear()
    cluster.run(1)
    assert cluster.fatal == []
    status = cluster.nodes[leader].engine.groups[0].status()
    ends = {voter.node_id: voter.log_end for voter in status.voters}
    assert ends[behind] <= 20 < ends[leader]
    monkeypatch.setattr(Choosy, "refuses", False)
    cluster.crash(behind)
    cluster.start(behind)
    cluster.check_end()


def test_raft_group_keeps_its_log_if_the_snapshot_of_its_state_machine_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failed snapshot the state machine is not asked again at each command."""
    cluster, leader = started()
    calls: list[int] = []

    def snapshot_steps() -> Steps[list[bytes]]:
        calls.append(1)
        yield
        raise ValueError("not now")

    machine: Any = cluster.nodes[leader].machines[0]
    machine.snapshot_steps = snapshot_steps
    for _ in range(70):
        cluster.submit(leader, 0)
    cluster.run(2)
    assert 1 <= len(calls) <= 3
    assert cluster.nodes[leader].engine.groups[0].status().log_start == 1
    cluster.check_end()


def test_raft_journal_segments_of_an_idle_group_are_deleted_beside_a_busy_group() -> None:
    """A few entries of one idle group must not keep all later segments forever."""
    cluster, _ = started(groups=2)
    assert cluster.run(10, cluster.leaders_settled)
    quiet = cluster.led_by(1)
    cluster.submit(quiet, 1)
    for _ in range(40):
        busy = cluster.led_by()
        for _ in range(4):
            cluster.submit(busy, 0, size=900)
        cluster.run(0.1)
    counts = [len(disk.segments()) for disk in cluster.disks.values()]
    assert max(counts) <= cluster.settings.segments_max + 3
    cluster.check_end()


@pytest.mark.parametrize("seed", range(1, 7))
def test_raft_cluster_that_is_idle_sends_few_messages(seed: int) -> None:
    """A heartbeat to a follower is one frame for all groups.

    A follower that also leads a group sends its answers with its own heartbeat.
    """
    never = RaftSettings(preferred_leader_delay_ms=10**9, first_leader_delay_ms=10**9)
    cluster = Cluster(seed, size=3, groups=5, settings=never)
    assert cluster.run(5, cluster.leaders_settled)
    cluster.run(3)
    leaders = {cluster.leader(g) for g in cluster.groups}
    sent = cluster.network.sent
    cluster.run(10)
    beats = 10_000 / cluster.settings.heartbeat_interval_ms
    by_followers = len(leaders) * (3 - len(leaders))
    assert cluster.network.sent - sent <= (len(leaders) * 2 + by_followers) * beats * 1.05
    assert {cluster.leader(g) for g in cluster.groups} == leaders


def test_raft_frames_of_a_long_message_queue_are_bounded() -> None:
    """A long queue of messages to a peer is divided into several frames."""
    chunk = SnapshotChunk(1, 1, 1, 0, 1 << 20, b"x" * 1_000)
    frames = list(split([(0, chunk)] * 10, 3_500))
    assert [len(frame) for frame in frames] == [3, 3, 3, 1]
    assert max(len(encode_frame(frame)) for frame in frames) < 3_500
