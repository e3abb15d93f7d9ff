"""docs/judge.md agrees with the code."""

from oncelog.proof.judge.catalogue import ANOMALIES

from .bug_classes import CLASSES
from .page import JEPSEN, MEANINGS, PAGE, TABLES, jepsen_cases, page, plant_and_judge


def test_the_page_is_true() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: .venv/bin/python -m tests.proof.judge.page"
    )


def test_all_cases_of_jepsen_are_in_the_page() -> None:
    numbers = {number for number, _ in jepsen_cases()}
    assert numbers == {f"{n:02}" for n in range(1, 24) if n != 16}  # 24 is speed.py
    assert set(JEPSEN) <= numbers
    assert {name for names in JEPSEN.values() for name in names} <= set(ANOMALIES)


def test_every_meaning_has_a_column() -> None:
    columns = {column.name for table in TABLES.values() for column in table.columns}
    assert set(MEANINGS) <= columns


def test_measurement_counts_its_plants() -> None:
    assert plant_and_judge("duplicate", 2) == (2, 2)


def test_most_classes_of_bugs_have_a_switch() -> None:
    """The switches exist: the page could not be made otherwise."""
    assert len(CLASSES) == 10
    assert sum(bool(each.switches) for each in CLASSES) >= 8
