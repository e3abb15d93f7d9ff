"""Test the order in which a pool lends its names, and the error when none becomes free."""

from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.client.dual_write.stop_words import WriterSuperseded
from oncelog.client.writer_pool.pool_names import NoWriterFree, PoolNames, Slot, Ticket
from oncelog.wire.errors import InvalidConfig, InvalidRequest


@dataclass(eq=False)
class Person:
    name: str
    is_dead: bool = False

    def seen(self) -> None:
        self.is_dead = False

    def __str__(self) -> str:
        return self.name


@dataclass
class Stopped:
    stopped_by: BaseException | None = None


def ticket_of(names: PoolNames, name: str, woken: list[str] | None = None) -> Ticket:
    heard = woken if woken is not None else []
    ticket = Ticket(Person(name), lambda: heard.append(name))
    names.wait(ticket)
    return ticket


def taken(names: PoolNames, name: str, now_s: float = 0.0) -> tuple[Slot, Any]:
    ticket = ticket_of(names, name)
    slot = names.take(ticket, now_s)
    assert slot is not None
    return slot, ticket.holder


def test_pool_names_are_the_prefix_and_a_number() -> None:
    assert [slot.name for slot in PoolNames("bank", 3).slots] == ["bank-0", "bank-1", "bank-2"]
    for wrong in (0, 1_001):
        with pytest.raises(InvalidConfig, match="1 to 1,000 writers"):
            PoolNames("bank", wrong)
    with pytest.raises(InvalidRequest):
        PoolNames("b" * 149, 10)


def test_pool_tickets_are_served_in_the_order_they_were_taken() -> None:
    names, woken = PoolNames("bank", 1), list[str]()
    slot, holder = taken(names, "a")
    b, c = ticket_of(names, "b", woken), ticket_of(names, "c", woken)
    assert names.take(b, 1.0) is None
    names.give_back(slot, holder)
    assert woken == ["b"]
    assert names.take(c, 1.0) is None
    assert names.take(b, 1.0) is slot


def test_pool_ticket_that_leaves_the_queue_wakes_the_next_ticket() -> None:
    names, woken = PoolNames("bank", 1), list[str]()
    slot, holder = taken(names, "a")
    b, c = ticket_of(names, "b", woken), ticket_of(names, "c", woken)
    names.give_back(slot, holder)
    names.leave(b)
    assert woken == ["b", "c"]
    assert names.take(c, 1.0) is slot


def test_pool_ticket_is_woken_only_when_it_is_first_in_the_queue() -> None:
    names, woken = PoolNames("bank", 1), list[str]()
    taken(names, "a")
    b, c, d = (ticket_of(names, name, woken) for name in "bcd")
    assert [names.is_next(each) for each in (b, c, d)] == [True, False, False]
    names.leave(c)
    names.leave(c)
    assert woken == []
    names.leave(b)
    assert woken == ["d"] and names.is_next(d)


def test_pool_writer_of_a_dead_holder_is_reclaimed_once() -> None:
    names = PoolNames("bank", 1)
    slot, dead = taken(names, "a")
    b = ticket_of(names, "b")
    assert names.take(b, 1.0) is None
    dead.is_dead = True
    assert names.take(b, 1.0) is slot and slot.is_orphan
    names.give_back(slot, dead)
    assert slot.holder is b.holder


def test_pool_name_that_was_superseded_is_never_lent_again() -> None:
    names = PoolNames("bank", 2)
    for _ in range(2):
        slot, holder = taken(names, "a")
        slot.writer = Stopped(WriterSuperseded("another process"))
        names.give_back(slot, holder)
    with pytest.raises(WriterSuperseded):
        names.take(ticket_of(names, "b"), 1.0)


def test_pool_timeout_names_the_holders_and_their_holding_times() -> None:
    names = PoolNames("bank", 12)
    for number in range(12):
        taken(names, f"task {number}", float(number))
    told = str(names.none_free(30.0, 40.0))
    assert "bank-0 by task 0 for 40.0 s, bank-1 by task 1 for 39.0 s" in told
    assert "2 more" in told and "within 30 s" in told


def test_pool_with_a_full_queue_refuses_another_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.client.writer_pool.pool_names.WAITING_MAX", 2)
    names = PoolNames("bank", 1)
    ticket_of(names, "a")
    ticket_of(names, "b")
    with pytest.raises(NoWriterFree, match="2 wait"):
        ticket_of(names, "c")
