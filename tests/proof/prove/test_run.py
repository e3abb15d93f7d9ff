"""Test that real runs report wrong applications, and report no correct one."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import oncelog
from oncelog.cli import main as cli
from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.plan import ALL_FROM_S

PROGRAMS = Path(__file__).parent / "programs"


def program(name: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / f"{name}.py")]


def nothing() -> None:
    """Print the name of its input topic, and exit with code 4."""
    print("I read", os.environ["ONCELOG_IN"])
    raise SystemExit(4)


@pytest.mark.cluster
@pytest.mark.in_turn
def test_prove_of_an_application_killed_between_output_and_commit_reports_duplicates(
    tmp_path: Path,
) -> None:
    outcome = oncelog.prove(
        program("at_least_once"), keep=tmp_path / "kept", faults="kill@before-commit", seed=1
    )
    assert outcome.verdict.name == "AT LEAST ONCE" and outcome.exit_code == 1, outcome
    assert outcome.met == 1 and not outcome.judgement.lost
    told = str(outcome)
    assert "before its OffsetCommit" in told and told.count("wrote its output") == 2, told
    page = (tmp_path / "kept" / "report.html").read_text()
    assert "AT LEAST ONCE" in page and "wrote its output" in page
    kept = json.loads((tmp_path / "kept" / "outcome.json").read_text())
    assert kept["verdict"] == "AT LEAST ONCE" and kept["faults"][0]["name"] == "kill@before-commit"


@pytest.mark.cluster
@pytest.mark.in_turn
def test_prove_of_a_transactional_application_reports_exactly_once() -> None:
    outcome = oncelog.prove(
        program("transactional"), faults="lose-answer@EndTxn,kill@before-commit", seed=1
    )
    assert outcome.is_exactly_once and outcome.exit_code == 0, outcome
    assert outcome.met == 2 and outcome.judgement.outputs == outcome.judgement.inputs > 0
    assert "TxnOffsetCommit" in outcome.apis and outcome.groups == ["invoicing"]


@pytest.mark.cluster
def test_prove_of_an_application_that_exits_shows_its_last_output(
    oncelog_cluster: oncelog.Cluster,
) -> None:
    with pytest.raises(Failure, match="ended with code 4") as told:
        oncelog.prove(
            nothing, inputs="never-in", outputs="never-out", bootstrap=oncelog_cluster.bootstrap
        )
    assert told.value.exit_code == 2 and "| I read never-in" in str(told.value)


@pytest.mark.in_turn
@pytest.mark.cluster
def test_prove_with_an_expect_function_judges_two_inputs_and_two_outputs(
    oncelog_cluster: oncelog.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    outcome = oncelog.prove(
        program("routing"), inputs=["orders", "payments"], outputs=["large", "small"], instances=1,
        bootstrap=oncelog_cluster.bootstrap, faults="cut,stop", feed="orders:pairs",
        expect="orders:routed",
    )  # fmt: skip
    assert outcome.is_exactly_once, outcome
    assert 1 < outcome.judgement.outputs < outcome.judgement.inputs


@pytest.mark.chaos
def test_prove_shrinks_a_plan_to_the_fault_that_causes_the_violation(
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--seed", "1", "--faults", "cut,lose-answer@Produce,kill@before-commit,add"]
    code = cli.run(["prove", *arguments, "--shrink", "--", *program("at_least_once")])
    told = capfd.readouterr().out
    assert code == 1 and "AT LEAST ONCE" in told, told
    words = "the fewest faults that break it: --faults "
    fewest = told.splitlines()[-1].removeprefix(words).split(",")
    assert 0 < len(fewest) <= 2 and set(fewest) != {"cut"}, told


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("at_least_once", {"AT LEAST ONCE"}),
        ("commits_first", {"AT MOST ONCE"}),
        ("unfenced", {"AT LEAST ONCE"}),
        ("transactional", {"EXACTLY ONCE"}),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_prove_with_the_whole_plan_gives_the_right_verdict(
    name: str, verdicts: set[str], seed: int
) -> None:
    settings: dict[str, Any] = {"seconds": ALL_FROM_S, "seed": seed}
    outcome = oncelog.prove(program(name), **settings)
    assert outcome.verdict.name in verdicts, outcome


@pytest.mark.chaos
@pytest.mark.parametrize("is_right", [True, False])
def test_prove_of_an_aggregation_judges_its_last_values(
    is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS)
    outcome = oncelog.prove(
        program("sums"), seed=3, seconds=25, feed="orders:feed", final="orders:totals",
        environment={"REBUILDS": "1"} if is_right else {},
    )  # fmt: skip
    assert outcome.verdict.name == ("EXACTLY ONCE" if is_right else "NEITHER"), outcome
    assert bool(outcome.judgement.wrong) != is_right


@pytest.mark.chaos
@pytest.mark.parametrize("is_right", [True, False])
def test_prove_of_a_database_sink_judges_its_table(is_right: bool, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    outcome = oncelog.prove(
        program("into_database"), outputs=(), seed=3, seconds=25,
        sink=f"sqlite:///{file}?table=invoices&id=order_id",
        environment={"DATABASE": str(file), **({"KEYED": "1"} if is_right else {})},
    )  # fmt: skip
    assert outcome.verdict.name == ("EXACTLY ONCE" if is_right else "AT LEAST ONCE"), outcome


@pytest.mark.chaos
@pytest.mark.parametrize("has_topic", [False, True], ids=["the table", "the topic"])
def test_prove_of_a_correct_dual_write_reports_exactly_once(
    has_topic: bool, tmp_path: Path
) -> None:
    """Separate runs judge the rows and the records of the same transactions."""
    file = tmp_path / "shop.db"
    judged: dict[str, Any] = {} if has_topic else {
        "outputs": (), "sink": f"sqlite:///{file}?table=invoices&id=order_id"
    }  # fmt: skip
    outcome = oncelog.prove(
        program("dual_write"), seed=3, seconds=25, environment={"DATABASE": str(file)}, **judged
    )
    assert outcome.verdict.name == "EXACTLY ONCE", str(outcome)
    assert outcome.judgement.inputs > 0


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("broken", "faults", "has_topic", "verdict"),
    [
        ("decision-before-prepare", "kill@before-produce," * 3, True, "AT MOST ONCE"),
        ("complete-before-commit", "kill@executed-EndTxn," * 3, True, "AT LEAST ONCE"),
        ("no-nonce", "pause@before-InitProducerId," * 4, True, "AT MOST ONCE"),
        ("two-owners", "pause-at-work," * 3, False, "AT LEAST ONCE"),
        ("no-tombstone", "kill@before-EndTxn", True, "AT MOST ONCE"),
    ],
)
def test_prove_of_a_dual_write_without_a_safeguard_reports_a_violation(
    broken: str, faults: str, has_topic: bool, verdict: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.db"
    judged: dict[str, Any] = {} if has_topic else {
        "outputs": (), "sink": f"sqlite:///{file}?table=invoices&id=order_id"
    }  # fmt: skip
    environment = {"DATABASE": str(file), "BROKEN": broken}
    outcome = oncelog.prove(
        program("broken_dual_write"),
        seed=3, seconds=80, faults=faults, environment=environment, **judged,
    )  # fmt: skip
    assert outcome.verdict.name == verdict, str(outcome)
