"""Test the share of each loop turn that requests may use. Work beyond the share is queued."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from oncelog.runtime.turn_share import IDLE_S, SHARE_S, TurnShare


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


class Counted:
    """A TurnShare that records (name, turn) of each action. An action takes half of the share."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.share = TurnShare(self.clock)
        self.turn = 0
        self.done: list[tuple[str, int]] = []

    def act(self, name: str) -> None:
        self.clock.now_s += SHARE_S / 2
        self.done.append((name, self.turn))

    def do(self, name: str) -> None:
        self.share.do(partial(self.act, name))

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.turn += 1


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def test_turn_share_that_is_used_up_runs_further_actions_in_the_next_turns_in_order() -> None:
    counted = Counted()
    for name in "abcde":
        counted.do(name)
    await counted.turns(4)
    assert counted.done == [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 1)]


async def test_turn_share_runs_a_later_action_after_the_waiting_actions() -> None:
    counted = Counted()
    for name in "abcdef":
        counted.do(name)
    await counted.turns(1)  # c and d have taken all of this turn
    counted.do("g")
    await counted.turns(4)
    assert "".join(name for name, _ in counted.done) == "abcdefg"


async def test_turn_share_early_action_that_charges_a_whole_share_ends_the_turn() -> None:
    counted = Counted()
    for name in "ab":
        counted.do(name)
    counted.share.put(partial(counted.share.charge, SHARE_S), is_early=True)
    for name in "yz":
        counted.share.put(partial(counted.act, name), is_early=True)
    await counted.turns(1)
    assert counted.done == [("a", 0), ("b", 0)]
    await counted.turns(3)
    assert [name for name, _ in counted.done[2:]] == ["y", "z"]


async def test_turn_share_early_actions_have_the_first_half_of_each_turn() -> None:
    counted = Counted()
    for name in "abcdef":  # a and b run at once
        counted.do(name)
    for name in "xyz":
        counted.share.put(partial(counted.act, name), is_early=True)
    await counted.turns(6)
    assert "".join(name for name, _ in counted.done) == "abxcydzef"


async def test_turn_share_is_renewed_in_every_turn() -> None:
    counted = Counted()
    for turn in range(4):
        counted.do("a")
        counted.do("b")
        assert counted.done[-2:] == [("a", turn), ("b", turn)]
        await counted.turns(1)
        counted.clock.now_s += 2 * IDLE_S


async def test_turn_share_tasks_waiting_for_room_are_charged_in_advance() -> None:
    counted = Counted()
    share = counted.share
    await share.room()
    counted.do("a")
    counted.do("b")
    waiting = [asyncio.create_task(share.room()) for _ in range(100)]
    await counted.turns(1)
    counted.do("c")
    woken = 0
    while "c" not in [name for name, _ in counted.done]:
        await counted.turns(1)
        now = sum(task.done() for task in waiting)
        assert now - woken <= 5
        woken = now
    await asyncio.gather(*waiting)


async def test_turn_share_tasks_waiting_for_room_are_woken_a_few_a_turn() -> None:
    counted = Counted()
    counted.do("a")
    counted.do("b")
    waiting = [asyncio.create_task(counted.share.room()) for _ in range(100)]
    await counted.turns(1)
    woken, most = 0, 0
    while woken < len(waiting):
        await counted.turns(1)
        now = sum(task.done() for task in waiting)
        woken, most = now, max(most, now - woken)
    assert most <= 5


async def test_turn_share_early_actions_that_charge_whole_turns_leave_turns_to_others() -> None:
    counted = Counted()

    def begin() -> None:
        counted.act("new")
        counted.share.charge(SHARE_S)

    counted.share.put(partial(counted.act, "old"))
    for _ in range(10):
        counted.share.put(begin, is_early=True)
    await counted.turns(5)
    names = [name for name, _ in counted.done]
    assert names[0] == "new"
    assert "old" in names


async def test_turn_share_time_kept_for_waiting_actions_is_not_left_to_early_ones() -> None:
    """The answer of each early action is queued, and takes no time."""
    counted = Counted()
    share = counted.share

    def begin() -> None:
        counted.act("new")
        counted.act("new")
        share.do(lambda: counted.done.append(("answer", counted.turn)))

    for _ in range(4):
        share.put(begin, is_early=True)
    await counted.turns(8)
    turns = [turn for name, turn in counted.done if name == "new"]
    assert len(turns) == 8 and max(map(turns.count, turns)) == 2
    assert [name for name, _ in counted.done].count("answer") == 4


@pytest.mark.parametrize("inner", ["do", "has_room", "room"])
async def test_turn_share_used_within_a_long_action_is_not_renewed(inner: str) -> None:
    """A long action asks the share for the work of its answer. This must not renew the share."""
    counted = Counted()
    share = counted.share

    def act(name: str) -> None:
        counted.act(name)
        if inner == "do":
            share.do(lambda: None)
            counted.clock.now_s += 2 * IDLE_S
            share.do(lambda: None)
        elif inner == "has_room":
            share.has_room()
        else:
            with suppress(StopIteration):
                share.room().send(None)

    for name in "abcd":
        share.do(partial(act, name))
    assert [name for name, _ in counted.done] == ["a", "b"]
    await counted.turns(3)
    assert [name for name, _ in counted.done] == ["a", "b", "c", "d"]


async def test_turn_share_that_was_only_asked_for_room_is_renewed_in_the_next_turn() -> None:
    """A caller that found room with `has_room`, but has no work, never calls `ended`."""
    counted = Counted()
    for _ in range(3):
        assert counted.share.has_room()
    counted.do("a")
    counted.do("b")
    await counted.turns(1)
    counted.clock.now_s += 2 * IDLE_S
    counted.do("c")
    assert counted.done == [("a", 0), ("b", 0), ("c", 1)]


async def test_turn_share_actions_during_long_work_belong_to_the_running_share() -> None:
    counted = Counted()
    assert counted.share.has_room()
    counted.do("a")
    counted.clock.now_s += 2 * IDLE_S
    counted.do("b")
    assert not counted.share.has_room()
    await counted.turns(1)
    assert counted.share.has_room()


async def test_turn_share_charged_time_is_unavailable_to_other_actions() -> None:
    counted = Counted()
    counted.do("a")
    counted.share.charge(SHARE_S)
    counted.do("b")
    assert counted.done == [("a", 0)]
    await counted.turns(2)
    assert len(counted.done) == 2


async def test_turn_share_action_that_raises_does_not_stop_later_actions() -> None:
    counted, failures = Counted(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def fail() -> None:
        raise ValueError("a defect")

    counted.do("a")
    counted.do("b")
    counted.share.do(fail)
    counted.do("c")
    await counted.turns(3)
    assert [name for name, _ in counted.done] == ["a", "b", "c"]
    assert len(failures) == 1


async def test_turn_share_task_that_is_cancelled_does_not_use_up_the_share() -> None:
    counted = Counted()

    async def wait() -> None:
        counted.do("a")
        counted.do("b")
        await counted.share.room()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert [name for name, _ in counted.done] == ["a", "b"]
    waiting.cancel()
    counted.do("c")
    counted.do("d")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await counted.turns(3)
    assert [name for name, _ in counted.done] == ["a", "b", "c", "d"]
