"""Test that the judge finds every planted anomaly by its name, and none in legal histories."""

import os

import pytest

from oncelog.proof.judge.catalogue import ANOMALIES
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.verdict import judge

from .model_cluster import ModelCluster
from .mutations import all_mutations, mutated

MUTATIONS = all_mutations()

HISTORIES = int(os.environ.get("ONCELOG_JUDGE_HISTORIES", "60"))
MUTATED = int(os.environ.get("ONCELOG_JUDGE_PLANTED", "6"))


def test_model_histories_that_are_legal_raise_no_violation() -> None:
    sends = polls = 0
    for seed in range(HISTORIES):
        history = History.of(ModelCluster(seed).recorder)
        verdict = judge(history)
        assert verdict.is_clean, (seed, [(f.name, f.cases[0]) for f in verdict.violations])
        # a short history may have no copied record and no files beside the logs
        assert {check for check, _ in verdict.not_judged} <= {"A5", "W3"}
        sends, polls = sends + history.count("sends"), polls + history.count("polls")
    assert sends > 200 * HISTORIES
    assert polls > 200 * HISTORIES


def test_model_histories_include_aborts_fences_and_timeouts() -> None:
    """A model without aborts, lost answers and fences would prove nothing."""
    errors: set[str | None] = set()
    outcomes: set[int] = set()
    legal: set[str] = set()
    for seed in range(5):
        history = History.of(ModelCluster(seed, steps=4_000).recorder)
        errors |= {history.name(int(n)) for n in history.column("transactions", "error")}
        outcomes |= set(history.column("transactions", "outcome").tolist())
        legal |= {finding.name for finding in judge(history).findings}
    assert errors == {"aborted on purpose", "PRODUCER_FENCED", "REQUEST_TIMED_OUT", None}
    assert outcomes == {0, 1, 2}
    assert {"int-send-skip", "G0"} <= legal


def test_model_anomaly_of_each_kind_can_be_planted() -> None:
    assert set(MUTATIONS) == {name for name, anomaly in ANOMALIES.items() if not anomaly.is_legal}


@pytest.mark.in_turn
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_model_anomaly_that_is_planted_is_found_by_its_name(name: str) -> None:
    for seed, edit in mutated(name, MUTATED):
        verdict = judge(edit.history())
        assert name in verdict.names(), (seed, verdict.names())
        (finding,) = [f for f in verdict.findings if f.name == name]
        assert finding.count >= len(finding.cases) > 0
        assert finding.cases[0].sentence
