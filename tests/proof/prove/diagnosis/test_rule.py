"""Test the bounded memory of the diagnosis rules."""

import gc
import sys
from dataclasses import replace

import pytest

from oncelog.proof.prove.diagnosis import seen as s
from oncelog.proof.prove.diagnosis.diagnosis import Diagnosis
from oncelog.proof.prove.diagnosis.rule import Recent

from .histories import Application, numbered


def test_diagnosis_rule_memory_beyond_its_bound_keeps_a_key_that_was_put_again() -> None:
    recent = Recent[str, int](2)
    for number, name in enumerate(("a", "b", "a", "c")):
        recent.put(name, number)
    assert recent.items() == [("a", 2), ("c", 3)]


def test_diagnosis_rule_memory_beyond_its_bound_forgets_the_first_added_key() -> None:
    recent = Recent[str, list[int]](2)
    for name in ("a", "b", "a", "c"):
        recent.setdefault(name, []).append(1)
    assert recent.items() == [("b", [1]), ("c", [1])] and "a" not in recent
    assert recent.pop("b") == [1] and recent.get("b") is None and len(recent) == 1


def test_diagnosis_forgets_the_records_of_batches_in_ended_transactions() -> None:
    """`observe` may run for days, and batches may have thousands of records."""
    diagnosis, app = Diagnosis(), Application()
    for seen in app.start():
        diagnosis.see(seen)
    for number in range(100):
        sent = numbered(app, number, sequence=number)
        for seen in (sent, app.produced(), *app.end()):
            diagnosis.see(seen)
    gc.collect()
    assert sum(isinstance(each, s.SentBatch) for each in gc.get_objects()) == 1


@pytest.mark.parametrize("is_ending", [False, True], ids=["in a transaction", "at its commit"])
def test_diagnosis_forgets_transactions_of_ids_that_are_never_used_again(is_ending: bool) -> None:
    """An application with a new transactional id at each start is killed each time."""

    def start(numbers: range) -> int:
        for number in numbers:
            app = Application(name=f"billing-{number}", connections=(2 * number, 2 * number + 1))
            opened = [s.SeenOpened(**app.at(each)) for each in app.connections]
            sent, commit = numbered(app, number), next(app.end())
            work = (*opened, app.init(), sent, app.produced(), *[commit] * is_ending)
            for seen in (*work, *app.stop()):
                diagnosis.see(seen)
        gc.collect()
        return sum(isinstance(each, (set, dict, s.SentBatch)) for each in gc.get_objects())

    diagnosis = Diagnosis()
    assert start(range(1_000)) == start(range(1_000, 1_100))


def test_diagnosis_of_a_commit_looks_only_at_the_inputs_of_its_partitions() -> None:
    """An instance also reads a partition without commits of its offsets."""
    diagnosis, app = Diagnosis(), Application()
    settings = replace(app, partition=1)
    for seen in (*app.start(), *settings.fetch(5_000)):
        diagnosis.see(seen)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for seen in app.transaction():
        sys.setprofile(count)
        diagnosis.see(seen)
        sys.setprofile(None)
    assert calls < 5_000
