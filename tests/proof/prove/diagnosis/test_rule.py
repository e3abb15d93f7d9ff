"""Test the bounded memory of the diagnosis rules."""

from oncelog.proof.prove.diagnosis.rule import Recent


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
