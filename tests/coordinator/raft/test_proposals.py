"""Test that the callbacks of commands run only when the state of all groups is consistent."""

import asyncio
import gc

import pytest

from oncelog.coordinator.raft import DefinitelyNot
from oncelog.coordinator.raft.messages import AppendEntries, encode_frame

from ...simulation.raft_simulation import Cluster, started


def test_raft_proposal_made_in_a_callback_sees_only_groups_with_a_current_leader() -> None:
    """One received frame ends the leadership of both groups, and group 0 has its turn first."""
    cluster, leader = started(3, groups=2)
    cluster.run(1)
    engine = cluster.nodes[leader].engine
    first, second = engine.groups[0], engine.groups[1]
    if cluster.leader(1) != leader:
        moving = cluster.led_by(1)
        cluster.nodes[moving].engine.groups[1].preferred_leader = None
        cluster.nodes[moving].engine.groups[1].begin_transfer(leader, lambda moved: None)
        assert cluster.run(5, lambda: cluster.leader(1) == leader)
    errors: list[Exception | None] = []
    log_end = second.status().log_end

    def then(_result: object, _error: Exception | None) -> None:
        second.propose(b"1-late", 1_000, lambda result, error: errors.append(error))

    first.propose(b"0-x", 1_000, then)
    deposing = AppendEntries(second.term + 1, 0, 0, 0, [])
    other = next(i for i in cluster.ids if i != leader)
    # A newer term in group 0 too, so that it abandons its command, and has its turn first.
    engine.receive(
        other,
        encode_frame([(0, AppendEntries(first.term + 1, 0, 0, 0, [])), (1, deposing)]),
    )
    assert len(errors) == 1 and isinstance(errors[0], DefinitelyNot)
    assert second.status().log_end == log_end


def test_raft_proposal_after_the_end_of_its_term_is_refused_immediately() -> None:
    """The leader has received a newer term, but has not yet resigned."""
    cluster, leader = started()
    group = cluster.nodes[leader].engine.groups[0]
    errors: list[Exception | None] = []
    other = next(i for i in cluster.ids if i != leader)
    group.receive(other, AppendEntries(group.term + 1, 0, 0, 0, []), cluster.world.now * 1_000)
    assert group.is_leader, "it has not had its turn"
    log_end = group.status().log_end
    group.propose(b"0-late", 1_000, lambda result, error: errors.append(error))
    assert isinstance(errors[0], DefinitelyNot)
    assert group.status().log_end == log_end


def test_raft_command_that_fails_leaves_no_reference_cycle() -> None:
    """Brokers collect only young objects, so a cycle with an older future would never be freed."""
    cluster = Cluster(1, groups=1)
    assert cluster.run(10, cluster.leaders_settled)
    follower = next(i for i in cluster.ids if i != cluster.leader(0))

    async def submit() -> None:
        with pytest.raises(DefinitelyNot):
            await cluster.nodes[follower].engine.groups[0].submit(b"0-x")

    gc.collect()
    before = [one for one in gc.get_objects() if isinstance(one, DefinitelyNot)]  # of other tests
    gc.disable()
    try:
        asyncio.run(submit())
        after = [one for one in gc.get_objects() if isinstance(one, DefinitelyNot)]
        assert len(after) == len(before)
    finally:
        gc.enable()
