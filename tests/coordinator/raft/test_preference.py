"""Test that the preferred leader gets the leadership only if it can lead immediately."""

from collections import Counter

import pytest

from oncelog.coordinator.raft import DefinitelyNot, RaftSettings

from ...simulation.raft_simulation import Cluster


def outcomes(cluster: Cluster, seconds: float, leaders: list[int]) -> Counter[str]:
    """Submit a command every 20 ms to the leader if it is in `leaders`. Return the outcomes."""
    found: Counter[str] = Counter()
    end = cluster.world.now + seconds
    while cluster.world.now < end:
        for i in leaders:
            group = cluster.nodes[i].engine.groups[0]
            if group.is_leader:
                found["proposed"] += 1

                def done(_result: object, error: Exception | None) -> None:
                    found[type(error).__name__] += 1

                group.propose(b"0-%d" % found["proposed"], 2_000, done)
        cluster.run(0.02)
    cluster.run(2.5)
    return found


def preferred_leads(seed: int, size: int) -> Cluster:
    cluster = Cluster(seed, size=size, groups=1, settings=RaftSettings())
    assert cluster.run(8, lambda: cluster.leader(0) == 1)
    return cluster


@pytest.mark.parametrize("commands", [0, 100])
def test_raft_preferred_leader_that_is_paused_delays_no_command(commands: int) -> None:
    """A transfer to the paused node would refuse commands until its timeout."""
    cluster = preferred_leads(3, 3)
    for _ in range(commands):
        cluster.submit(1, 0)
    cluster.run(4)
    # A frame to or from a paused process is neither delivered nor refused by the transport.
    deliver = cluster.network.send

    def send(source: int, target: int, frame: bytes) -> bool:
        return 1 in (source, target) or deliver(source, target, frame)

    cluster.network.send = send
    assert cluster.run(5, lambda: any(cluster.nodes[i].engine.groups[0].is_leader for i in (2, 3)))
    found = outcomes(cluster, 10, [2, 3])
    assert found[DefinitelyNot.__name__] == 0
    assert found["NoneType"] == found["proposed"] > 400


def test_raft_preferred_leader_that_may_not_vote_gets_no_leadership() -> None:
    """The wiped preferred leader may not vote until a voter that is down has answered."""
    cluster = preferred_leads(3, 5)
    for _ in range(100):
        cluster.submit(1, 0)
    cluster.run(2)
    cluster.crash(5)
    cluster.crash(1, wipe=True)
    cluster.run(2)
    cluster.start(1)
    cluster.run(4)
    found = outcomes(cluster, 10, cluster.ids[1:4])
    assert found[DefinitelyNot.__name__] == 0
    assert found["NoneType"] == found["proposed"] > 400
    cluster.start(5)
    assert cluster.run(10, lambda: cluster.leader(0) == 1), "now it may"
    cluster.check_end()


def test_raft_leadership_transfer_that_failed_is_not_repeated_soon() -> None:
    """The preferred leader answers all messages, but never becomes a candidate."""
    cluster = preferred_leads(4, 3)
    cluster.submit(1, 0)
    cluster.crash(1)
    assert cluster.run(5, cluster.leaders_settled)
    cluster.start(1)
    leader = cluster.led_by()
    cluster.nodes[1].engine.groups[0]._election._stand = lambda now_ms: None  # type: ignore[method-assign]
    found = outcomes(cluster, 12, [leader])
    refused = found[DefinitelyNot.__name__]
    assert 40 <= refused <= 110, "two attempts: the second is later by twice the delay"
    assert found["NoneType"] == found["proposed"] - refused
