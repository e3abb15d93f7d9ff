"""Test in a model with failures that the sink neither loses nor doubles a row.

In mode "prepared" it also leaves no transaction open. Runs without a safeguard fail, or the model
would prove nothing. Two records are redundant, so only runs without both of them fail.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from oncelog.pipeline.sink.modes import Mode

from .model_parts import Parts, Size
from .sink_model import run

SEEDS = int(os.environ.get("ONCELOG_SINK_SEEDS", "1200"))
LARGE = Size(batches=5, tasks=4, rows=1)


def verdicts(seeds: range, parts: Parts, size: Size = Size()) -> Counter[str]:  # noqa: B008
    found: Counter[str] = Counter()
    for seed in seeds:
        verdict = run(seed, parts, size)
        found["doubled"] += bool(verdict.doubled)
        found["missing"] += bool(verdict.missing)
        found["left open"] += bool(verdict.left_open)
    return +found


@pytest.mark.parametrize("part", range(3))
def test_sink_model_with_random_faults_writes_every_row_once(part: int) -> None:
    assert not verdicts(range(part * SEEDS // 3, (part + 1) * SEEDS // 3), Parts())


def test_sink_model_with_more_batches_and_tasks_writes_every_row_once() -> None:
    assert not verdicts(range(100_000, 100_000 + SEEDS // 4), Parts(), LARGE)


def test_sink_model_without_one_of_two_redundant_records_writes_every_row_once() -> None:
    assert not verdicts(range(SEEDS // 6), replace(Parts(), keeps_banks=False))
    assert not verdicts(range(SEEDS // 6), replace(Parts(), writes_done=False))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("missed", "parts"),
    [
        ("missing", Parts(keeps_banks=False, writes_done=False)),
        ("missing", Parts(sweeps_in_order=False)),
        ("missing", Parts(has_generations=False)),
        ("missing", Parts(prepares=False)),
        ("doubled", Parts(decides=False, writes_done=False)),
        ("missing", Parts(ids_of_attempts=False, repeats=False)),
        ("missing", Parts(ids_are_taken_out=False, repeats=False)),
        ("missing", Parts(abandons_ids=False)),
    ],
    ids=[
        "no banks",
        "a sweep may abort any generation",
        "no generation in the ids of children",
        "children time out",
        "no decision",
        "ids of partition and attempt: a sleeper wakes",
        "twins are dealt the same id",
        "an id is used after its first request got no answer",
    ],
)
def test_sink_model_without_a_safeguard_loses_or_repeats_rows(missed: str, parts: Parts) -> None:
    for seed in range(SEEDS):
        if getattr(run(seed, parts), missed):
            return
    pytest.fail("the model does not notice")


# --- mode "transactional"

TRANSACTIONAL = Parts(mode=Mode.TRANSACTIONAL)


def outcomes(seeds: range, parts: Parts) -> Counter[str]:
    """Count the runs with doubled rows, and those with missing rows, with an alarm and without."""
    found: Counter[str] = Counter()
    for seed in seeds:
        verdict = run(seed, parts)
        found["doubled"] += bool(verdict.doubled)
        if verdict.missing:
            found["torn" if verdict.is_told else "silent"] += 1
    return +found


@pytest.mark.parametrize("is_v2", [True, False])
def test_sink_model_in_transactional_mode_with_short_outages_writes_every_row_once(
    is_v2: bool,
) -> None:
    parts = replace(TRANSACTIONAL, outages=False, is_v2=is_v2)
    assert not outcomes(range(SEEDS // 4), parts)


@pytest.mark.parametrize("is_v2", [True, False])
def test_sink_model_in_transactional_mode_with_long_outages_loses_rows_only_with_an_alarm(
    is_v2: bool,
) -> None:
    found = outcomes(range(SEEDS // 20), replace(TRANSACTIONAL, is_v2=is_v2))
    assert found.keys() == {"torn"}


def test_sink_model_that_commits_children_without_describing_them_loses_rows_more_often() -> None:
    seeds = range(SEEDS // 20)
    rash = outcomes(seeds, replace(TRANSACTIONAL, asks=False))
    once = outcomes(seeds, replace(TRANSACTIONAL, asks_again=False))
    whole = outcomes(seeds, TRANSACTIONAL)
    assert rash["torn"] > 1.5 * whole["torn"]
    assert once["torn"] > 2 * whole["torn"]


def test_sink_model_that_takes_a_forgotten_id_for_committed_loses_rows_silently() -> None:
    careless = replace(TRANSACTIONAL, minds_the_forgotten=False)
    assert any(outcomes(range(seed, seed + 1), careless)["silent"] for seed in range(SEEDS))
