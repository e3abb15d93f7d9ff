"""Test a simulated Raft cluster with random faults. A failure prints its seed."""

import random
from typing import Any

import pytest

from oncelog.coordinator.raft.messages import Vote, encode_frame

from .raft_simulation import Cluster, Violation


def run_schedule(seed: int) -> Cluster:
    """Run thirty rounds of random load and faults, then end all faults and check the invariants."""
    rng = random.Random(seed)
    size = rng.choice([3, 3, 3, 4, 5])
    cluster = Cluster(seed, size=size)
    network = cluster.network
    network.loss, network.repetition = rng.choice([0, 0, 0.02, 0.1]), rng.choice([0, 0.05])
    network.disorder, network.delay_max = rng.choice([0, 0.2]), rng.choice([0.002, 0.01, 0.04, 0.1])
    for _ in range(30):
        for _ in range(rng.randrange(12)):
            i, g = rng.choice([*cluster.nodes, 0]), rng.choice(cluster.groups)
            target = cluster.leader(g) if rng.random() < 0.9 else i
            if target in cluster.nodes:
                cluster.submit(target, g, size=rng.choice([40, 40, 400, 2_000]))
            if rng.random() < 0.3:
                cluster.run(rng.uniform(0, 0.01))
        cluster.run(rng.choice([0.01, 0.05, 0.2, 0.6]))
        act(cluster, rng)
    cluster.check_end()
    return cluster


def act(cluster: Cluster, rng: random.Random) -> None:
    """Inject one random fault, or end one."""
    ids, alive, network = cluster.ids, list(cluster.nodes), cluster.network
    choice = rng.random()
    if choice < 0.08:  # a partition in two
        side = set(rng.sample(ids, rng.randrange(1, len(ids))))
        network.cut |= {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
    elif choice < 0.14:  # one direction of one link
        source, target = rng.sample(ids, 2)
        network.cut.add((source, target))
    elif choice < 0.18:  # one node receives nothing, or is not received
        i, way = rng.choice(ids), rng.random() < 0.5
        network.cut |= {(i, j) if way else (j, i) for j in ids if j != i}
    elif choice < 0.22:  # a ring: neighbours only
        n = len(ids)
        near = {(ids[k], ids[(k + d) % n]) for k in range(n) for d in (1, n - 1)}
        network.cut |= {(a, b) for a in ids for b in ids if a != b} - near or {(1, 2), (2, 1)}
    elif choice < 0.40:
        network.cut.clear()
    elif choice < 0.58 and alive:  # a crash; of a leader, of one, of all
        leaders = [i for g in cluster.groups if (i := cluster.leader(g)) is not None]
        several = rng.sample(alive, rng.randrange(1, len(alive) + 1))
        victims = rng.choice([leaders[:1], [rng.choice(alive)], several, alive])
        power = rng.random() < 0.5
        for i in victims:
            cluster.crash(i, power=power)
        if rng.random() < 0.5:  # those left vote: some die while they do
            crash_soon(cluster, rng, list(cluster.nodes))
    elif choice < 0.61 and cluster.all_vote():
        cluster.crash(rng.choice(alive), wipe=True)
    elif choice < 0.66:
        g = rng.choice(cluster.groups)
        leader = cluster.leader(g)
        if leader is not None:
            cluster.nodes[leader].engine.groups[g].begin_transfer(rng.choice(ids), lambda _: None)
    elif choice < 0.76:
        crash_soon(cluster, rng, alive)
    for i in ids:
        if i not in cluster.nodes and rng.random() < 0.4:
            cluster.start(i)


def crash_soon(cluster: Cluster, rng: random.Random, nodes: list[int]) -> None:
    """Crash some of the nodes during their next disk jobs. They restart soon."""
    for i in rng.sample(nodes, rng.randrange(len(nodes) + 1)):
        jobs = rng.randrange(1, rng.choice([2, 4, 12]))
        down_s = rng.choice([0.0, 0.002, 0.1])
        cluster.crash_after(i, jobs, power=rng.random() < 0.5, down_s=down_s)


def run_power_cuts(seed: int) -> Cluster:
    """Run a steady load with snapshots, and repeatedly cut the power of a random set of nodes."""
    rng = random.Random(seed)
    cluster = Cluster(seed, size=3)
    for _ in range(14):
        cluster.run(3, cluster.leaders_settled)
        for _ in range(rng.randrange(1, 8)):
            for g in cluster.groups:
                leader = cluster.leader(g)
                if leader is None:
                    continue
                for _ in range(rng.randrange(14)):
                    cluster.submit(leader, g, size=rng.choice([40, 300, 900]))
            cluster.run(rng.choice([0.001, 0.004, 0.03]))
        alive = list(cluster.nodes)
        for i in rng.choice([alive, rng.sample(alive, rng.randrange(len(alive) + 1))]):
            cluster.crash(i, power=True)
        cluster.run(rng.choice([0, 0.1, 0.8]))
        for i in cluster.ids:
            if i not in cluster.nodes:
                cluster.start(i)
    cluster.check_end()
    return cluster


def some(firsts: range) -> list[Any]:
    """Return a pytest parameter for each first seed, of which every second has the mark chaos."""
    marks = ([], [pytest.mark.chaos])
    return [pytest.param(first, marks=marks[at % 2]) for at, first in enumerate(firsts)]


@pytest.mark.in_turn
@pytest.mark.parametrize("first", some(range(0, 24, 6)))
def test_raft_wal_after_simulated_power_cuts_loses_no_synced_entry(first: int) -> None:
    """The power is cut at any moment of a write, a snapshot, or the deletion of a segment."""
    for seed in range(first, first + 6):
        try:
            run_power_cuts(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.in_turn
@pytest.mark.parametrize("first", some(range(0, 64, 8)))
def test_raft_groups_under_random_faults_lose_no_acknowledged_entry(first: int) -> None:
    """The runs check safety under all faults, and liveness after the faults."""
    acknowledged = 0
    for seed in range(first, first + 8):
        try:
            acknowledged += len(run_schedule(seed).history.acknowledged)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    assert acknowledged > 200, "the schedules hardly did anything"


def test_raft_simulation_reports_a_node_that_votes_twice_in_a_term() -> None:
    cluster = Cluster(0)
    for term, candidate in ((7, 2), (7, 2), (8, 3)):
        cluster._send(1, candidate, encode_frame([(0, Vote(term))]))
    with pytest.raises(Violation, match="node 1 votes for 2 and 3 in 0, term 7"):
        cluster._send(1, 3, encode_frame([(0, Vote(7))]))


def test_raft_simulation_of_one_seed_has_the_same_trace_twice() -> None:
    """In both runs each frame is sent at the same time."""
    traces = [run_schedule(7).world.trace.hexdigest() for _ in range(2)]
    assert traces[0] == traces[1]


@pytest.mark.soak
def test_raft_simulation_of_2000_further_seeds_loses_no_entry(
    request: pytest.FixtureRequest,
) -> None:
    """Use other seeds than the default run."""
    if "soak" not in str(request.config.getoption("-m")):
        pytest.skip("runs with -m soak")
    for seed in range(1_000, 3_000):
        run_schedule(seed)
        run_power_cuts(seed)
