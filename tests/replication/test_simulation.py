"""Seeded runs of a whole replicated partition set, and planted bugs that they must find."""

import pytest

from .simulated_cluster import Rules, Simulation, Violation


def run(seed: int, rules: Rules | None = None, duration_ms: int = 3000) -> Simulation:
    sim = Simulation(seed, rules or Rules())
    faults = sim.random

    def fault() -> None:
        node = sim.nodes[faults.choice((1, 2, 3))]
        other = faults.choice([n for n in (1, 2, 3) if n != node.node_id])
        match faults.randint(0, 9):
            case 0 | 1 | 2:
                if node.is_alive:
                    node.kill()
                    sim.at(faults.choice((1, 10, 120)), lambda: node.is_alive or node.start())
            case 3:
                if sim.may_lose_power(node):
                    node.kill(power=True)
                    sim.at(faults.choice((1, 80)), lambda: node.is_alive or node.start())
            case 4 | 5:
                sim.cut.add((node.node_id, other))
                sim.at(faults.randint(10, 200), lambda: sim.cut.discard((node.node_id, other)))
            case 6:
                sim.isolated.add(node.node_id)
                sim.at(faults.randint(20, 200), lambda: sim.isolated.discard(node.node_id))

    def load() -> None:
        sim.produce()
        sim.at(faults.randint(1, 8), load)

    def trouble() -> None:
        fault()
        sim.at(faults.randint(5, 120), trouble)

    sim.at(1, load)
    sim.at(20, trouble)
    sim.run(duration_ms)
    sim.events = [event for event in sim.events if event[2] not in (load, trouble)]
    sim.heal()
    sim.run(2000)
    sim.judge_end()
    return sim


@pytest.mark.parametrize("seed", range(25))
def test_committed_records_survive_every_leader_change(seed: int) -> None:
    sim = run(seed)
    assert sim.elections > 2
    assert sum(map(len, sim.committed.values())) > 20


def test_a_follower_that_does_not_truncate_is_found() -> None:
    for seed in range(20):
        try:
            run(seed, Rules(truncates=False))
        except Violation:
            return
    pytest.fail("20 seeds did not notice")
