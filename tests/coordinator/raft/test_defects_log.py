"""Test the defects D1, D3 and D8 of PySyncObj, and that our engine does not have them.

Each defect damages the log. It is first shown on the unmodified library, so its test fails when a
release of the library fixes the defect.
"""

from collections.abc import Callable

from ...simulation.raft_simulation import started
from .stock import StockNetwork


def test_pysyncobj_with_a_repeated_append_truncates_acknowledged_entries(
    stock_network: Callable[..., StockNetwork],
) -> None:
    """The repeated message removes later entries, and then the leader dies (defect D1)."""
    net = stock_network(3, delay=(0.02, 0.02), appendEntriesUseBatch=False)
    leader = net.elect()
    follower, cut_off = (node for node in net.nodes if node != leader)
    net.isolate(cut_off)
    net.gap = 0.01
    outcomes: dict[int, int] = {}

    def append(k: int) -> None:
        callback = lambda result, error: outcomes.__setitem__(k, error)  # noqa: E731
        net.objects[leader].append((k, "x" * 2_000), callback=callback)

    for k in range(150):
        append(k)
    net.step()
    net.unlink(leader, follower)  # the bytes in flight are lost
    net.link(leader, follower)
    for k in range(150, 153):
        append(k)
        net.step()
    net.run(5, lambda: len(outcomes) == 153)
    net.kill(leader)
    net.cut.clear()
    net.link(follower, cut_off)
    net.run(12, net.leader)
    net.run(2)
    present = {item[0] for item in net.objects[net.elect()].items}
    acknowledged = {k for k, error in outcomes.items() if error == 0}
    assert len(acknowledged) == 153
    assert len(acknowledged - present) > 0, "the stock library has been mended"


def test_raft_append_that_arrives_twice_truncates_no_entry() -> None:
    """Half of the frames are repeated, and half arrive out of order (defect D1)."""
    cluster, leader = started(3)
    follower, cut_off = (i for i in cluster.ids if i != leader)
    network = cluster.network
    cluster.isolate(cut_off)
    network.repetition, network.disorder = 0.5, 0.5
    for k in range(150):
        cluster.submit(leader, 0, size=2_000)
        if k % 20 == 0:  # the link breaks: messages in flight are lost
            network.cut |= {(leader, follower), (follower, leader)}
            cluster.run(0.003)
            network.cut -= {(leader, follower), (follower, leader)}
            cluster.nodes[leader].engine.peer_up(follower)
    cluster.run(5, lambda: len(cluster.history.acknowledged) == 150)
    assert len(cluster.history.acknowledged) == 150
    cluster.crash(leader)
    network.cut.clear()
    cluster.check_end()


def test_pysyncobj_reports_success_for_commands_never_committed(
    stock_network: Callable[..., StockNetwork],
) -> None:
    """The commit index of a snapshot passes uncommitted entries of the old leader (defect D3)."""
    net = stock_network(
        4,
        appendEntriesUseBatch=False,
        leaderFallbackTimeout=60,
        logCompactionMinEntries=20,
        logCompactionMinTime=10**9,
    )
    old = net.elect()
    others = [node for node in net.nodes if node != old]
    net.isolate(old)
    outcomes: list[int] = []
    for k in range(10):
        net.objects[old].append(("minority", k), callback=lambda r, error: outcomes.append(error))
    net.run(5, lambda: any(net.objects[node]._isLeader() for node in others))
    new = next(node for node in others if net.objects[node]._isLeader())
    for k in range(60):
        net.objects[new].append(("majority", k))
    net.run(2)
    net.objects[new].forceLogCompaction()
    net.run(1)
    net.gap = 0.02
    net.heal()
    net.run(5)
    survivors = [item for item in net.objects[new].items if item[0] == "minority"]
    assert outcomes.count(0) == 10, "the stock library has been mended"
    assert survivors == []


def test_raft_leader_that_is_deposed_never_commits_its_own_tail() -> None:
    """A snapshot replaces the old leader's log, and the replaced commands do not succeed (D3)."""
    cluster, old = started(4)
    cluster.isolate(old)
    minority = {cluster.submit(old, 0, timeout_ms=60_000) for _ in range(10)}
    others = [i for i in cluster.ids if i != old]

    def led() -> bool:
        return any(cluster.nodes[i].engine.groups[0].is_leader for i in others)

    assert cluster.run(10, led)
    new = next(i for i in others if cluster.nodes[i].engine.groups[0].is_leader)
    for _ in range(100):
        cluster.submit(new, 0)
        cluster.run(0.01)
    assert cluster.nodes[new].engine.groups[0].status().log_start > 10, "no snapshot was needed"
    cluster.check_end()
    assert not minority & cluster.history.acknowledged
    assert minority <= cluster.history.unknown


def test_pysyncobj_divergent_follower_never_catches_up(
    stock_network: Callable[..., StockNetwork],
) -> None:
    """If the missing entries exceed one message, the next index jumps back again and again (D8)."""
    net = stock_network(
        4,
        appendEntriesUseBatch=False,
        leaderFallbackTimeout=60,
        logCompactionMinEntries=10**9,
        logCompactionMinTime=10**9,
    )
    old = net.elect()
    others = [node for node in net.nodes if node != old]
    net.isolate(old)
    for k in range(10):
        net.objects[old].append(("minority", k))
    net.run(5, lambda: any(net.objects[node]._isLeader() for node in others))
    new = next(node for node in others if net.objects[node]._isLeader())
    for k in range(100):
        net.objects[new].append((k, "m" * 2_000))
    net.run(2)
    net.objects[new].transferLeadership()
    net.run(3)
    net.heal()
    net.run(30)
    assert len(net.objects[old].items) < 100, "the stock library has been mended"


def test_raft_follower_that_diverged_catches_up() -> None:
    """Our engine sends the missing entries in many messages (defect D8)."""
    cluster, old = started(4)
    cluster.isolate(old)
    for _ in range(10):
        cluster.submit(old, 0, size=500)
    others = [i for i in cluster.ids if i != old]
    assert cluster.run(10, lambda: any(cluster.nodes[i].engine.groups[0].is_leader for i in others))
    new = next(i for i in others if cluster.nodes[i].engine.groups[0].is_leader)
    for _ in range(25):
        cluster.submit(new, 0, size=1_000)
    cluster.run(1)
    moved: list[bool] = []
    target = next(i for i in others if i != new)
    cluster.nodes[new].engine.groups[0].begin_transfer(target, moved.append)
    cluster.run(2)
    assert moved == [True]
    sent = cluster.network.sent
    cluster.network.cut.clear()
    applied = cluster.nodes[target].engine.groups[0].applied_index
    back = cluster.nodes[old].engine.groups[0]
    assert cluster.run(3, lambda: back.applied_index >= applied)
    assert cluster.network.sent - sent < 400, "no storm of appends and refusals"
    cluster.check_end()
