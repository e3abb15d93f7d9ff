"""Three histories in which one forgotten rule loses acknowledged records.

Each is played with the real leader, which must come through, and with one from which the rule
was taken out, which must not: so the history is known to test the rule. Partition 0 has the
replicas 2, 3, 1; node 2 leads at first, and the controller elects in that order.
"""

from collections.abc import Callable

import pytest

from oncelog.replication.follower_progress import FollowerProgress
from oncelog.replication.leader import PartitionLeader

from .simulated_cluster import Rules, Simulation, Violation

KEY = (bytes(16), 0)
EVERYONE = {1, 2, 3}


class CountsConfirmedMembersOnly(PartitionLeader):
    """The high watermark ignores an admission under way (KIP-497)."""

    __slots__ = ()

    def _holds_back(self, follower: FollowerProgress, now_ms: int) -> bool:
        return follower.node_id in self.isr


class JoinsBeforeTheEpochStart(PartitionLeader):
    """At the high watermark is enough to join (KAFKA-7128)."""

    __slots__ = ()

    def _may_join(self, follower: FollowerProgress, now_ms: int) -> bool:
        return follower.log_end_offset >= self._log.high_watermark and self._is_eligible(follower)


class TrustsEveryIncarnation(PartitionLeader):
    """What a former incarnation fetched still counts (KIP-903)."""

    __slots__ = ()

    def _may_join(self, follower: FollowerProgress, now_ms: int) -> bool:
        at_the_end = follower.log_end_offset >= self._log.high_watermark
        return at_the_end and self._is_eligible(follower)

    def _is_eligible(self, follower: FollowerProgress) -> bool:
        return follower.node_id in self._peers.live

    def _broker_epoch_of(self, node: int) -> int:
        return self._peers.live.get(node, -1)


def isr(sim: Simulation) -> set[int]:
    return set(sim.controller.partitions[KEY].isr)


def produce(sim: Simulation, more: int) -> None:
    """Append and replicate until this many more are committed, or time is up."""
    wanted = len(sim.committed.get(KEY, [])) + more

    def enough() -> bool:
        sim.produce()
        return len(sim.committed.get(KEY, [])) >= wanted

    sim.run_until(enough, 500)


def settled(rules: Rules) -> Simulation:
    """Everybody in the ISR, some records committed."""
    sim = Simulation(7, rules)
    for node in sim.nodes.values():
        node.server._response_bytes_max = 3000
    produce(sim, 10)
    assert sim.run_until(lambda: isr(sim) == EVERYONE, 500)
    return sim


def a_member_is_admitted_and_the_leader_does_not_hear_of_it(rules: Rules) -> Simulation:
    sim = settled(rules)
    sim.cut.add((3, 2))
    assert sim.run_until(lambda: sim.produce() or isr(sim) == {1, 2}, 500)
    leader = sim.nodes[2].hosts[KEY].leader
    assert leader is not None
    assert sim.run_until(lambda: leader.isr == {1, 2} and not leader.pending_isr_change, 500)
    sim.cut.clear()
    sim.isr_answer_chance = 0.0
    sim.uninformed.add(2)
    assert sim.run_until(lambda: isr(sim) == EVERYONE, 500)
    sim.cut.add((3, 2))  # and the new member fetches no more
    sim.run(LAG_MS)
    produce(sim, 20)
    sim.isr_answer_chance = 1.0
    sim.nodes[2].kill()
    return sim


def the_new_leader_knows_less_is_committed_than_is(rules: Rules) -> Simulation:
    sim = settled(rules)
    sim.cut.add((1, 2))
    assert sim.run_until(lambda: sim.produce() or isr(sim) == {2, 3}, 500)
    produce(sim, 60)
    sim.cut.clear()
    sim.cut |= {(1, 2), (2, 1)}
    sim.cut.add((2, 3))
    sim.run(10)
    sim.nodes[3].hosts[KEY].log.high_watermark = 0  # it follows by up to one poll
    sim.nodes[3].server._response_bytes_max = 30  # a slow link: record by record
    sim.nodes[2].kill()
    assert sim.run_until(lambda: sim.controller.partitions[KEY].leader == 3, 500)
    sim.run_until(lambda: 1 in isr(sim), 200)
    sim.nodes[3].kill()
    return sim


def a_member_loses_its_tail_in_a_power_cut_and_returns_at_once(rules: Rules) -> Simulation:
    sim = settled(rules)
    produce(sim, 40)
    sim.run(100)  # node 3 has told that it holds everything
    sim.cut.add((3, 2))
    sim.nodes[3].kill(power=True)
    sim.nodes[3].hosts[KEY].log.truncate_to(5)
    sim.nodes[3].start()
    sim.run_until(lambda: 3 not in isr(sim), 100)
    sim.run_until(lambda: 3 in isr(sim), 200)
    sim.nodes[2].kill()
    return sim


LAG_MS = 130
Scenario = Callable[[Rules], Simulation]
SCENARIOS = [
    pytest.param(
        a_member_is_admitted_and_the_leader_does_not_hear_of_it,
        Rules(leader=CountsConfirmedMembersOnly),
        id="pending admission",
    ),
    pytest.param(
        the_new_leader_knows_less_is_committed_than_is,
        Rules(leader=JoinsBeforeTheEpochStart),
        id="start of the epoch",
    ),
    pytest.param(
        a_member_loses_its_tail_in_a_power_cut_and_returns_at_once,
        Rules(leader=TrustsEveryIncarnation, checks_broker_epoch=False),
        id="incarnation",
    ),
]


def play(scenario: Scenario, rules: Rules) -> None:
    sim = scenario(rules)
    sim.run(300)
    sim.heal()
    sim.run(2000)
    sim.judge_end()


@pytest.mark.parametrize(("scenario", "without_the_rule"), SCENARIOS)
def test_nothing_is_lost(scenario: Scenario, without_the_rule: Rules) -> None:
    play(scenario, Rules())


@pytest.mark.parametrize(("scenario", "without_the_rule"), SCENARIOS)
def test_without_the_rule_records_are_lost(scenario: Scenario, without_the_rule: Rules) -> None:
    with pytest.raises(Violation, match=r"without all committed|became"):
        play(scenario, without_the_rule)
