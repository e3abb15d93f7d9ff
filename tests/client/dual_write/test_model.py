"""Test a dual write in a model with random failures, for equal numbers of events and rows.

The model must also find a difference when a safeguard is removed. Otherwise it would prove nothing.
"""

import os
from collections import Counter

import pytest

from .model_run import Parts, run

SEEDS = int(os.environ.get("ONCELOG_DUAL_WRITE_SEEDS", "900"))


def verdicts(seeds: range, parts: Parts) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        verdict = run(seed, parts)
        found["lost"] += bool(verdict.lost)
        found["invented"] += bool(verdict.invented)
        found["doubled"] += bool(verdict.doubled)
        found["left open"] += bool(verdict.left_open)
        found["false alarms"] += bool(verdict.alarms)
    return +found


@pytest.mark.parametrize("part", range(3))
def test_dual_write_model_with_random_faults_has_equal_rows_and_events(part: int) -> None:
    assert not verdicts(range(part * SEEDS // 3, (part + 1) * SEEDS // 3), Parts())


def test_dual_write_model_completes_transfers_in_most_runs() -> None:
    transfers = [run(seed).transfers for seed in range(100)]
    assert sum(transfers) > 300 and sum(count == 0 for count in transfers) < 10


@pytest.mark.parametrize(
    ("missed", "parts"),
    [
        ("lost", Parts(prepares_first=False)),
        ("invented", Parts(commits_first=False)),
        ("lost", Parts(has_nonce=False)),
        ("invented", Parts(has_epoch=False)),
        ("lost", Parts(one_owner=False)),
        ("lost", Parts(has_tombstone=False)),
        ("lost", Parts(leaves_uncertain_ids=False)),
        ("lost", Parts(asks_in_doubt=False)),
        ("lost", Parts(keeps_tombstones=False)),
        ("lost", Parts(asks_table=False)),
        ("left_open", Parts(ends_what_comes_late=False)),
        ("lost", Parts(asks_when_cut=False)),
    ],
    ids=[
        "decision-before-prepare",
        "complete-before-commit",
        "no-nonce",
        "no-epoch",
        "two-owners",
        "no-tombstone",
        "an id is used after its first request got no answer",
        "a commit in doubt is taken for none",
        "a row `aborted` is deleted while its session may commit",
        "a coordinator that was deposed says what is open",
        "what a session opens after its rows were deleted is not ended",
        "a commit that was interrupted is taken for none",
    ],
)
def test_dual_write_model_without_a_safeguard_shows_unequal_rows_and_events(
    missed: str, parts: Parts
) -> None:
    for seed in range(SEEDS):
        if getattr(run(seed, parts), missed):
            return
    pytest.fail("the model does not notice")
