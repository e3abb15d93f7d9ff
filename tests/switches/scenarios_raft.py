"""Scenarios of Raft in its own simulation, with elections and power cuts.

In an election, each node that has just voted for another node crashes and restarts at once. The
vote request of another candidate of the same term may still arrive.
"""

import random

from ..simulation.raft_simulation import Cluster
from ..simulation.test_raft_simulation import run_power_cuts

ROUNDS = 12
SILENCE_S = 1.5  # longer than the election timeout, so that every node wants to stand afterwards
SLOW_NETWORK_S = 0.06
VOTE_ON_ITS_WAY_S = 0.004  # a vote is sent when it is on disk


def elections(seed: int) -> Cluster:
    """Run elections with crashes of nodes that have just voted, and return the cluster.

    Raises Violation, for example for two leaders of a term.
    """
    rng = random.Random(seed)
    cluster = Cluster(seed, size=3, groups=1)
    network = cluster.network
    cluster.run(10, lambda: cluster.all_vote() and cluster.leaders_settled())
    for _ in range(ROUNDS):
        links = {(a, b) for a in cluster.ids for b in cluster.ids if a != b}
        network.cut |= links
        cluster.run(SILENCE_S)
        network.delay_max = SLOW_NETWORK_S
        network.cut.clear()
        for _ in range(3):
            known = {i: voted(cluster, i) for i in cluster.nodes}
            cluster.run(1.0, lambda known=known: bool(new_voters(cluster, known)))
            voters = new_voters(cluster, known)
            cluster.run(VOTE_ON_ITS_WAY_S)
            for i in voters:
                cluster.crash(i, power=rng.random() < 0.5)
                cluster.start(i)
        cluster.run(0.5)
        network.delay_max = 0.002
        cluster.run(5, cluster.leaders_settled)
        leader = cluster.leader(0)
        if leader is not None:
            cluster.submit(leader, 0)
    cluster.check_end()
    return cluster


def voted(cluster: Cluster, i: int) -> tuple[int, int | None]:
    """Return the term and the vote of a node."""
    log = cluster.nodes[i].engine.groups[0]._log
    return log.getCurrentTerm(), log.getVotedForNodeId()


def new_voters(cluster: Cluster, known: dict[int, tuple[int, int | None]]) -> list[int]:
    """Return the nodes that have voted for another node since `known` was read."""
    return [
        i
        for i, before in known.items()
        if (now := voted(cluster, i)) != before and now[1] is not None and now[1] != i
    ]


SCENARIOS = {"raft-elections": elections, "raft-power-cuts": run_power_cuts}
