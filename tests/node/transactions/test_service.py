"""Test the transaction coordinator's writes, answers, markers, fences and timeouts."""

import asyncio
from itertools import pairwise

import pytest

from oncelog.coordinator.transactions import states as fault_points
from oncelog.coordinator.transactions.connection_fence import StaleConnection
from oncelog.coordinator.transactions.messages import VerifyTransaction
from oncelog.node.transactions import shard_timeouts
from oncelog.node.transactions.shard_timeouts import ABORTS_AT_ONCE, ShardCountMismatch
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...awaiting import until
from .one_node import NODE, OneNode

E = ErrorCode
FAULT_POINTS = [v for n, v in vars(fault_points).items() if n.startswith(("BEFORE_", "AFTER_"))]
T0, T1, T2 = ("t", 0), ("t", 1), ("u", 0)


async def test_transaction_that_commits_writes_its_markers_and_completes(node: OneNode) -> None:
    who = await node.init()
    assert (who.error, who.producer_epoch) == (0, 0)
    assert await node.add(who, T0, T1) == 0
    assert node.state() == "Ongoing"
    ended = await node.end(who)
    assert ended.error == 0
    await node.until_state("CompleteCommit")
    assert sorted(node.partitions.epochs()) == [(T0, 0, True), (T1, 0, True)]
    assert {m.coordinator_epoch for _, m in node.partitions.written} == {1}
    await until(lambda: node.passed == FAULT_POINTS)
    await node.coordinators.stop()


async def test_end_txn_is_answered_before_any_marker_is_written(node: OneNode) -> None:
    node.partitions.gate = asyncio.Event()
    who = await node.init()
    await node.add(who)
    ended = await node.end(who)
    assert ended.error == 0 and node.state() == "PrepareCommit"
    assert node.partitions.written == []
    node.release_markers()
    await node.until_state("CompleteCommit")


async def test_next_transaction_waits_for_the_markers_and_writes_their_completion() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.prepared()
    adding = asyncio.ensure_future(node.add(who, T1))
    await asyncio.sleep(0.01)
    assert not adding.done()
    commands = len(node.groups[0].log)
    node.release_markers()
    assert await adding == 0
    assert node.state() == "Ongoing"
    assert len(node.groups[0].log) == commands + 1  # Complete and Ongoing in one command
    record = node.shards[0].records["id"]
    assert record.partitions == {T1}


async def test_held_request_beyond_its_time_gets_concurrent_transactions() -> None:
    node = OneNode(hold_ms=20)
    who = await node.prepared()
    assert await node.add(who, T1) == E.CONCURRENT_TRANSACTIONS
    assert (await node.init()).error == E.CONCURRENT_TRANSACTIONS
    assert (await node.end(who)).error == E.CONCURRENT_TRANSACTIONS
    assert (await node.end(who, False)).error == E.CONCURRENT_TRANSACTIONS
    verify = VerifyTransaction("id", who.producer_id, 0, (T1,), adds=True)
    assert (await node.coordinators.verify(verify)).error == E.CONCURRENT_TRANSACTIONS


async def test_held_requests_beyond_their_maximum_are_refused() -> None:
    node = OneNode(hold_ms=300, held_max=2)
    who = await node.prepared()
    held = [asyncio.ensure_future(node.add(who, T1)) for _ in range(2)]
    await asyncio.sleep(0.01)
    before = node.loop.time()
    assert await node.add(who, T1) == E.CONCURRENT_TRANSACTIONS
    assert node.loop.time() - before < 0.2
    node.release_markers()
    assert await asyncio.gather(*held) == [0, 0]


async def test_init_producer_id_completes_the_transaction_of_the_previous_session(
    node: OneNode,
) -> None:
    old = await node.init()
    await node.add(old, T0)
    new = await node.init()
    assert (new.error, new.producer_id, new.producer_epoch) == (0, old.producer_id, 2)
    assert node.partitions.epochs() == [(T0, 1, False)]
    assert await node.add(old) == E.PRODUCER_FENCED
    assert (await node.end(old)).error == E.PRODUCER_FENCED
    assert await node.add(new) == 0


async def test_end_txn_waits_for_an_add_partitions_write_in_flight(node: OneNode) -> None:
    """An abort of librdkafka may overtake its AddPartitions. An error would be fatal (#4849)."""
    who = await node.init()
    node.groups[0].held = []
    adding = asyncio.ensure_future(node.add(who))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(node.end(who, False))
    await asyncio.sleep(0.01)
    assert not ending.done()
    node.groups[0].release()
    assert await adding == 0
    assert (await ending).error == 0
    await node.until_state("CompleteAbort")


async def test_empty_v2_abort_needs_no_marker_and_may_be_repeated(node: OneNode) -> None:
    who = await node.init()
    ended = await node.end(who, False, v2=True)
    assert (ended.error, ended.producer_epoch) == (0, 1)
    assert node.state() == "CompleteAbort"
    assert node.partitions.asked == []
    assert (await node.end(who, False, v2=True)).producer_epoch == 1  # the retry


async def test_end_txn_v2_writes_markers_with_the_raised_epoch(node: OneNode) -> None:
    who = await node.init()
    for epoch in range(1, 4):
        verify = VerifyTransaction("id", who.producer_id, who.producer_epoch, (T0, T1), adds=True)
        assert (await node.coordinators.verify(verify)).errors == (0, 0)
        who = await node.end(who, v2=True)
        assert (who.error, who.producer_epoch) == (0, epoch)
    await node.until_state("CompleteCommit")
    assert {m.transaction_version for _, m in node.partitions.written} == {2}
    assert sorted({m.producer_epoch for _, m in node.partitions.written}) == [1, 2, 3]


# -- outcomes of writes


async def test_transaction_write_that_was_refused_gets_a_retriable_error(node: OneNode) -> None:
    who = await node.init()
    node.groups[0].fate = ["refused"]
    assert await node.add(who) == E.COORDINATOR_NOT_AVAILABLE
    assert node.state() == "Empty"
    assert await node.add(who) == 0


@pytest.mark.parametrize("fate", ["lost", "unknown"])
async def test_transaction_write_with_an_unknown_outcome_is_resolved_from_the_log(
    fate: str,
) -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    await node.add(who)
    node.groups[0].fate = [fate, "lost"]  # the first barrier is lost as well
    assert (await node.end(who)).error == E.COORDINATOR_NOT_AVAILABLE
    # Until a barrier is applied the outcome is unknown, and nothing is assumed.
    again = await node.end(who)
    if fate == "lost":
        assert again.error == 0
    else:
        assert again.error in (0, E.CONCURRENT_TRANSACTIONS)
    await node.until_state("CompleteCommit")
    assert node.partitions.epochs() == [(T0, 0, True)]


async def test_init_producer_id_without_a_producer_id_block_gets_a_retriable_error(
    node: OneNode,
) -> None:
    node.id_failure = RequestTimedOut()
    assert (await node.init()).error == E.COORDINATOR_LOAD_IN_PROGRESS
    node.id_failure = None
    assert (await node.init()).error == 0


# -- elections


async def test_coordinator_that_loads_or_has_resigned_refuses_requests() -> None:
    node = OneNode(is_led=False)
    group = node.groups[0]
    assert (await node.init()).error == E.NOT_COORDINATOR
    assert node.coordinators.leader_of("id") is None
    leaders = node.coordinators.leaders
    assert leaders.list_error == E.COORDINATOR_NOT_AVAILABLE
    group.leader_id = NODE  # elected; its barrier is not applied
    assert (await node.init()).error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert leaders.list_error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert node.coordinators.describe("id").error == E.COORDINATOR_LOAD_IN_PROGRESS
    group.elect()
    assert node.coordinators.leader_of("id") == NODE
    assert ((await node.init()).error, leaders.list_error) == (0, 0)
    group.resign(successor=2)
    assert node.coordinators.leader_of("id") == 2
    assert ((await node.init()).error, leaders.list_error) == (E.NOT_COORDINATOR, 0)
    await node.coordinators.stop()
    assert leaders.list_error == E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("is_commit", [True, False])
async def test_next_coordinator_resends_all_markers_under_its_own_epoch(
    node: OneNode, is_commit
) -> None:
    node.partitions.errors = {T1: [E.NOT_ENOUGH_REPLICAS] * 1000}
    who = await node.init()
    await node.add(who, T0, T1)
    await node.end(who, is_commit)
    await until(lambda: bool(node.partitions.written))
    group = node.groups[0]
    group.resign()
    group.elect(9)
    node.partitions.errors = {}
    await node.until_state("CompleteCommit" if is_commit else "CompleteAbort")
    again = [(p, m.coordinator_epoch) for p, m in node.partitions.written[1:]]
    assert sorted(again) == [(T0, 9), (T1, 9)]


async def test_held_request_is_refused_when_the_term_ends() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.prepared()
    held = asyncio.ensure_future(node.add(who, T1))
    await asyncio.sleep(0.01)
    node.groups[0].resign(successor=2)
    assert await held == E.NOT_COORDINATOR
    node.release_markers()
    await asyncio.sleep(0.05)
    assert node.state() == "PrepareCommit"  # the old leader completes nothing


async def test_transaction_completion_that_was_not_durable_is_repeated(node: OneNode) -> None:
    who = await node.init()
    await node.add(who)
    await node.end(who)
    await until(lambda: bool(node.partitions.written))
    group = node.groups[0]
    group.resign()
    assert node.state() == "PrepareCommit"
    group.elect()
    await node.until_state("CompleteCommit")
    assert [m.coordinator_epoch for _, m in node.partitions.written] == [1, 2]


async def test_transaction_shard_count_other_than_that_of_the_cluster_is_refused() -> None:
    node = OneNode(shards=4)
    await node.coordinators.leaders.confirm_shard_count()
    other = OneNode(shards=2, is_led=False)
    for command in node.groups[0].log:
        other.shards[0].apply(command, 1, 1)
    with pytest.raises(ShardCountMismatch, match="set it to 4"):
        await other.coordinators.leaders.confirm_shard_count()


# -- time


async def test_transaction_timeout_aborts_with_a_raised_epoch() -> None:
    node = OneNode(timeout_scan_interval_ms=5)
    who = await node.init(timeout_ms=1_000)
    await node.add(who)
    node.coordinators.leaders.start()
    node.wall_ms += 1_000
    await asyncio.sleep(0.03)
    assert node.state() == "Ongoing"
    node.wall_ms += 1
    await node.until_state("CompleteAbort")
    assert node.partitions.epochs() == [(T0, 1, False)]
    assert (await node.end(who)).error == E.PRODUCER_FENCED
    assert await node.add(who) == E.PRODUCER_FENCED
    counts = node.events.counts
    assert (counts["abort", "timeout"], counts["fence", "older session"]) == (1, 2)
    await node.coordinators.stop()


async def test_init_producer_id_of_a_new_session_is_logged_as_a_fence(node: OneNode, caplog):
    caplog.set_level("INFO", "oncelog.events")
    old = await node.init()
    assert [kind for kind, _ in node.events.counts] == ["election"]
    await node.add(old)
    new = await node.init(asked_by="client b at 10.0.0.1")
    assert (await node.end(old)).error == E.PRODUCER_FENCED
    first, second = (m for m in caplog.messages if m.startswith("fence "))
    assert "a new session of client b at 10.0.0.1 fences the previous producer" in first
    assert "whose transaction was aborted" in first
    refused = f"EndTxn of producer {old.producer_id} epoch {old.producer_epoch} is refused"
    assert (
        refused in second and f"at producer {new.producer_id} epoch {new.producer_epoch}" in second
    )
    again = await node.init(expected=(new.producer_id, new.producer_epoch))
    assert again.producer_epoch == new.producer_epoch + 1
    fences = sum(n for (kind, _), n in node.events.counts.items() if kind == "fence")
    assert fences == 2, "a producer that keeps its session fences no other"


async def test_clock_advance_counts_towards_the_timeout_of_transactions_opened_before_it() -> None:
    node = OneNode(id_expiration_ms=60_000)
    old, idle = await node.init(timeout_ms=60_000), await node.init("idle", timeout_ms=60_000)
    await node.add(old)
    node.advances = node.advances.advanced(node.wall_ms, 59_999)
    node.wall_ms += 1
    new = await node.init("new", timeout_ms=60_000)
    await node.add(new, name="new")
    await node.coordinators.leaders.look()
    assert (node.state(), node.state("idle")) == ("Ongoing", "Empty")
    node.wall_ms += 1
    await node.coordinators.leaders.look()
    await node.until_state("CompleteAbort")
    await until(lambda: node.state("idle") == "")
    assert await node.add(idle, name="idle") == E.INVALID_PRODUCER_ID_MAPPING
    assert node.state("new") == "Ongoing"
    await node.coordinators.stop()


async def test_wall_clock_set_back_does_not_prolong_open_transactions() -> None:
    """In an earlier version the transaction stayed open for an hour longer (simulation seed 47)."""
    node = OneNode(timeout_scan_interval_ms=5)
    who = await node.init(timeout_ms=60)
    await node.add(who)
    node.coordinators.leaders.start()
    node.wall_ms -= 3_600_000
    begun_s = node.loop.time()
    await node.until_state("CompleteAbort")
    assert node.loop.time() - begun_s >= 0.05
    await node.coordinators.stop()


async def test_two_phase_commit_transaction_has_no_timeout_and_ends_on_any_connection() -> None:
    node = OneNode(timeout_scan_interval_ms=5, two_phase_commit_enabled=True)
    node.connection_ids.newest = 5
    who = await node.init(timeout_ms=1, enables_two_phase_commit=True)
    await node.add(who)
    node.coordinators.leaders.start()
    node.wall_ms += 10**12
    await asyncio.sleep(0.03)
    assert node.state() == "Ongoing"
    assert (await node.end(who, connection_id=1, waited_ms=10**6)).error == 0
    await node.until_state("CompleteCommit")
    assert (await node.end(who, connection_id=2)).error == 0
    assert (await node.end(who, False, connection_id=3)).error == E.INVALID_TXN_STATE
    await node.coordinators.stop()


async def test_transactional_ids_that_are_idle_expire_and_open_ones_do_not() -> None:
    node = OneNode(id_scan_interval_ms=5, id_expiration_ms=1_000)
    idle = await node.init("idle")
    open_one = await node.init("open")
    await node.add(open_one, name="open")
    node.coordinators.leaders.start()
    node.wall_ms += 1_001
    await until(lambda: node.state("idle") == "")
    assert node.state("open") == "Ongoing"
    assert await node.add(idle, name="idle") == E.INVALID_PRODUCER_ID_MAPPING
    again = await node.init("idle")
    assert again.producer_id != idle.producer_id
    await node.coordinators.stop()


async def test_transactional_ids_expire_in_steps_except_those_used_meanwhile(monkeypatch) -> None:
    monkeypatch.setattr(shard_timeouts, "IDS_A_STEP", 10)
    monkeypatch.setattr(shard_timeouts, "EXPIRIES_PER_COMMAND", 50)
    node = OneNode(id_scan_interval_ms=1, id_expiration_ms=1_000)
    producers = {f"id{n}": await node.init(f"id{n}") for n in range(300)}
    node.wall_ms += 1_001
    group = node.groups[0]
    before = len(group.log)
    group.held = []
    node.coordinators.leaders.start()
    await until(lambda: bool(group.held))  # the first command
    adding = node.loop.create_task(node.add(producers["id299"], name="id299"))
    await asyncio.sleep(0)
    assert len(node.shards[0]) == 300
    group.release()
    await adding
    await until(lambda: len(node.shards[0]) == 1)
    assert node.state("id299") == "Ongoing"
    assert len(node.groups[0].log) - before >= 6
    await node.coordinators.stop()


async def test_transactions_that_time_out_together_are_all_aborted(monkeypatch) -> None:
    monkeypatch.setattr(shard_timeouts, "IDS_A_STEP", 10)
    monkeypatch.setattr(shard_timeouts, "ABORTS_AT_ONCE", 5)
    node = OneNode(timeout_scan_interval_ms=5)
    for n in range(100):
        await node.add(await node.init(f"id{n}", timeout_ms=1_000), name=f"id{n}")
    node.wall_ms += 1_001
    node.coordinators.leaders.start()
    for n in range(100):
        await node.until_state("CompleteAbort", f"id{n}")
    await node.coordinators.stop()


async def test_transactions_of_all_shards_that_time_out_together_share_the_loop_turns() -> None:
    shards = 4
    node = OneNode(shards, timeout_scan_interval_ms=1_000_000)
    for n in range(shards * ABORTS_AT_ONCE):
        await node.add(await node.init(f"id{n}", timeout_ms=1_000), name=f"id{n}")
    node.wall_ms += 1_001
    for group in node.groups:
        group.held = []
    begun = [0]
    looking = asyncio.create_task(node.coordinators.leaders.look())
    while begun[-1] < shards * ABORTS_AT_ONCE:
        await asyncio.sleep(0)
        begun.append(sum(len(group.held or ()) for group in node.groups))
    steps = [after - before for before, after in pairwise(begun)]
    assert max(steps) == ABORTS_AT_ONCE
    await looking
    for group in node.groups:
        group.release()
    await node.coordinators.stop()


async def test_list_transactions_does_not_read_the_partitions_of_transactions(
    node: OneNode,
) -> None:
    """Reading 3,000 partitions of each of 200 transactions would block the loop for 0.4 s."""
    partitions = [("t", index) for index in range(3)]
    await node.add(await node.init(), *partitions)
    (listed,) = node.coordinators.descriptions()
    assert (listed.transactional_id, listed.state, listed.partitions) == ("id", "Ongoing", ())
    assert node.coordinators.describe("id").partitions == tuple(partitions)
    await node.coordinators.stop()


# -- limits and refusals


async def test_transaction_timeouts_and_ids_are_validated() -> None:
    node = OneNode(timeout_max_ms=1_000)
    for timeout_ms in (0, -1, 1_001):
        assert (await node.init(timeout_ms=timeout_ms)).error == E.INVALID_TRANSACTION_TIMEOUT
    assert (await node.init("")).error == E.INVALID_REQUEST
    refused = await node.init(timeout_ms=1, enables_two_phase_commit=True)
    assert refused.error == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_transactional_ids_open_transactions_and_partitions_are_bounded() -> None:
    node = OneNode(ids_max=2, open_max=1, partitions_max=3, hold_ms=0)
    one, two = await node.init("one"), await node.init("two")
    assert (await node.init("three")).error == E.POLICY_VIOLATION
    assert (await node.init("two")).error == 0
    many = [("t", i) for i in range(4)]
    assert await node.add(one, *many, name="one") == E.POLICY_VIOLATION
    assert await node.add(one, *many[:3], name="one") == 0
    two = await node.init("two")
    assert await node.add(two, name="two") == E.CONCURRENT_TRANSACTIONS
    await node.end(one, name="one")
    await until(lambda: not node.shards[0].open_ids)
    assert await node.add(two, name="two") == 0


async def test_describe_transactions_lists_the_partitions_without_a_marker(node: OneNode) -> None:
    node.partitions.errors = {T1: [E.NOT_LEADER_OR_FOLLOWER] * 1000}
    who = await node.init()
    assert node.coordinators.describe("other").error == E.TRANSACTIONAL_ID_NOT_FOUND
    await node.add(who, T0, T1)
    seen = node.coordinators.describe("id")
    assert (seen.state, seen.start_ms, seen.partitions) == ("Ongoing", node.wall_ms, (T0, T1))
    await node.end(who)
    await until(lambda: node.coordinators.describe("id").partitions == (T1,))
    node.partitions.errors = {}
    await until(lambda: node.coordinators.describe("id").state == "CompleteCommit")
    (listed,) = node.coordinators.descriptions()
    assert listed.transactional_id == "id"


# -- late requests (KAFKA-17754)


async def test_end_txn_on_an_older_connection_is_not_executed(node: OneNode) -> None:
    who = await node.init(connection_id=1)
    await node.add(who, connection_id=1)
    # EndTxn on connection 1 is delayed; the client repeats it on connection 2, and continues there.
    assert (await node.end(who, connection_id=2)).error == 0
    await node.until_state("CompleteCommit")
    assert await node.add(who, T1, connection_id=2) == 0
    with pytest.raises(StaleConnection):
        await node.end(who, connection_id=1)
    assert node.state() == "Ongoing"
    assert (await node.end(who, False, connection_id=2)).error == 0


async def test_end_txn_on_an_older_connection_without_the_fence_ends_the_next_transaction() -> None:
    """Without the fence KAFKA-17754 occurs, so the test of the fence proves something."""
    node = OneNode(has_connection_fence=False)
    who = await node.init(connection_id=1)
    await node.add(who, connection_id=1)
    await node.end(who, connection_id=2)
    await node.until_state("CompleteCommit")
    await node.add(who, T1, connection_id=2)
    assert (await node.end(who, connection_id=1, waited_ms=10**6)).error == 0
    await node.until_state("CompleteCommit")


async def test_new_coordinator_serves_only_connections_younger_than_its_election(
    node: OneNode,
) -> None:
    who = await node.init(connection_id=1)
    node.connection_ids.newest = 7
    node.groups[0].resign()
    node.groups[0].elect()
    for call in (
        node.init(connection_id=7),
        node.add(who, connection_id=7),
        node.end(who, connection_id=7),
    ):
        with pytest.raises(StaleConnection):
            await call
    assert await node.add(who, connection_id=8) == 0


async def test_end_txn_that_waited_too_long_in_the_kernel_is_not_executed() -> None:
    node = OneNode(stale_request_ms=5_000)
    who = await node.init(connection_id=1)
    await node.add(who, connection_id=1)
    with pytest.raises(StaleConnection):
        await node.end(who, connection_id=1, waited_ms=5_001)
    assert (await node.end(who, connection_id=1, waited_ms=5_000)).error == 0


async def test_zombie_producer_on_an_older_connection_gets_producer_fenced(node: OneNode) -> None:
    old = await node.init(connection_id=1)
    new = await node.init(connection_id=2)
    assert await node.add(old, connection_id=1) == E.PRODUCER_FENCED
    assert (await node.end(old, connection_id=1)).error == E.PRODUCER_FENCED
    assert await node.add(new, connection_id=2) == 0
