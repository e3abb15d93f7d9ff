"""Test that docs/judge.md agrees with the code."""

from oncelog.proof.judge.catalogue import ANOMALIES

from .bug_classes import CLASSES
from .page import JEPSEN, MEANINGS, PAGE, TABLES, jepsen_cases, page, plant_and_judge


def test_judge_page_equals_the_output_of_its_generator() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it anew: .venv/bin/python -m tests.proof.judge.page"
    )


def test_judge_page_lists_all_cases_of_jepsen() -> None:
    numbers = {number for number, _ in jepsen_cases()}
    assert numbers == {f"{n:02}" for n in range(1, 24) if n != 16}  # 24 is speed.py
    assert set(JEPSEN) <= numbers
    assert {name for names in JEPSEN.values() for name in names} <= set(ANOMALIES)


def test_judge_page_explains_only_columns_that_exist() -> None:
    columns = {column.name for table in TABLES.values() for column in table.columns}
    assert set(MEANINGS) <= columns


def test_judge_page_measurement_counts_planted_anomalies() -> None:
    assert plant_and_judge("duplicate", 2) == (2, 2)


def test_judge_page_shows_a_switch_for_most_classes_of_bugs() -> None:
    """The page can only be written if the named switches exist."""
    assert len(CLASSES) == 10
    assert sum(bool(each.switches) for each in CLASSES) >= 8
