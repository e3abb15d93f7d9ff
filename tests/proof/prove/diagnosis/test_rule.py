"""Test the bounded memory of the diagnosis rules."""

import gc

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
