"""Test which connections may read while the memory for requests is short."""

from oncelog.node.listener.memory_budget import ALLOWANCE_BYTES, MemoryBudget


class FakeHolder:
    """A connection that counts how often it may read."""

    def __init__(self, *, can_finish: bool) -> None:
        self.can_finish = can_finish
        self.leaves = 0

    def budget_allows(self) -> None:
        self.leaves += 1


def full(*holders: FakeHolder) -> MemoryBudget:
    budget = MemoryBudget(1_000)
    budget.hold(2_000)
    for holder in holders:
        assert budget.must_wait(holder, ALLOWANCE_BYTES + 1)
    return budget


def test_memory_budget_above_its_limit_lets_a_connection_that_can_finish_read() -> None:
    idle, partial = FakeHolder(can_finish=False), FakeHolder(can_finish=True)
    budget = full(idle, partial)
    budget.let_one_pass()
    assert (idle.leaves, partial.leaves) == (0, 1)
    assert not budget.must_wait(partial, ALLOWANCE_BYTES + 1)


def test_memory_budget_reservation_without_use_is_given_to_the_next_connection() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.let_one_pass()
    budget.let_one_pass()
    assert (first.leaves, second.leaves) == (1, 0), "one at a time"
    first.can_finish = False
    budget.let_one_pass()
    assert (first.leaves, second.leaves) == (1, 1)


def test_memory_budget_release_wakes_all_waiting_connections() -> None:
    idle, partial = FakeHolder(can_finish=False), FakeHolder(can_finish=True)
    budget = full(idle, partial)
    budget.release(1_500)
    assert (idle.leaves, partial.leaves, budget.waiting_count) == (1, 1, 0)


def test_memory_budget_lets_the_next_connection_read_when_a_request_is_answered() -> None:
    first, second, third = (FakeHolder(can_finish=True) for _ in range(3))
    budget = full(first, second, third)
    budget.pass_next()
    budget.finished_request(first)
    budget.pass_next()
    budget.release(0, second)
    assert (first.leaves, second.leaves) == (1, 0), "the first request is not answered"
    budget.release(100, first)
    assert (second.leaves, third.leaves) == (1, 0)
    budget.remove(second)
    assert third.leaves == 1


def test_memory_budget_lets_another_connection_read_although_a_request_waits_for_long() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.let_one_pass()
    budget.finished_request(first)
    budget.let_one_pass()
    assert second.leaves == 1
