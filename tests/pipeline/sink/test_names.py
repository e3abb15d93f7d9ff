"""Ids of a sink: whose they are, and when one may be used again."""

import pytest

from oncelog.pipeline.sink.names import (
    SINKS_MAX,
    WorkerIds,
    check_sink_id,
    child_prefix,
    control_id,
    generation_of,
)


@pytest.mark.parametrize("name", ["", "a b", "a#1", "a/b", "x" * 101, "ä"])
def test_a_sink_id_that_cannot_be_part_of_an_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="sink_id"):
        check_sink_id(name)


def test_only_own_children_have_a_generation() -> None:
    mine = WorkerIds("0000abcd").take("s", 7, 0)
    assert generation_of("s", mine) == 7
    assert mine.startswith(child_prefix("s"))
    for other in (control_id("s"), WorkerIds("0000abcd").take("s.g7", 7, 0), "s.g7.0000abcd.0"):
        assert generation_of("s", other) is None
    nested = WorkerIds("0000abcd").take("s.g1.00000000.1", 2, 0)
    assert generation_of("s", nested) is None
    assert generation_of("s.g1.00000000.1", nested) == 2


def test_a_transactional_id_is_reused_only_after_its_commit_and_for_a_newer_batch() -> None:
    ids = WorkerIds("0000abcd")
    first = ids.take("s", 1, 0)
    second = ids.take("s", 1, 0)
    assert first != second
    assert ids.take("s", 1, 2, [first]) == first
    assert ids.take("s", 1, 2, [first]) not in (first, second)  # one attempt a batch
    assert ids.take("s", 1, 1, [second, first]) == second
    assert ids.take("s", 1, 0, [first, second]) not in (first, second)  # a task come too late


def test_the_tasks_of_several_sinks_take_turns_in_one_process() -> None:
    ids = WorkerIds("0000abcd")
    one, other = ids.take("s", 1, 0), ids.take("t", 1, 0)
    assert ids.take("s", 1, 2, [one]) == one
    assert ids.take("t", 1, 2, [other]) == other
    late = ids.take("s", 0, 9, [one])  # of a driver that is gone
    assert generation_of("s", late) == 0
    assert ids.take("s", 1, 4, [one]) == one
    for number in range(SINKS_MAX):
        ids.take(f"s{number}", 1, 0)
    assert ids.take("s", 1, 6, [one]) != one


def test_an_abandoned_transactional_id_is_never_reused() -> None:
    ids = WorkerIds("0000abcd")
    name = ids.take("s", 1, 0)
    ids.leave(name)
    assert ids.take("s", 1, 2, [name]) != name


def test_ids_of_other_processes_and_generations_are_not_touched() -> None:
    ids = WorkerIds("0000abcd")
    own = ids.take("s", 1, 0)
    assert ids.take("s", 1, 2, [WorkerIds("0000ffff").take("s", 1, 0)]) != own
    fresh = ids.take("s", 2, 3, [own])
    assert generation_of("s", fresh) == 2
    assert ids.take("s", 1, 5, [own]) != own
