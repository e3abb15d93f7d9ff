"""Test that `conformance` surveys a real cluster and leaves it unchanged."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.conformance.compare import compared
from oncelog.proof.conformance.survey import survey_of

from .recorded import kafka, ours

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=1) as running:
        yield running


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = run(["conformance", *arguments])
    return code, capsys.readouterr().out


def left_behind(cluster: Cluster) -> list[list[Any]]:
    """Return the topics and the groups of the cluster."""
    return [
        cluster.ask(lambda admin: admin.describe_topics()),
        cluster.ask(lambda admin: admin.groups.list_groups()),
    ]


def test_conformance_survey_of_our_cluster_equals_the_code_tables(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = left_behind(cluster)
    code, printed = asked(capsys, "--bootstrap", cluster.bootstrap, "--format", "json")
    fields = json.loads(printed)
    assert (code, list(fields)) == (0, ["cluster"])
    found, table = survey_of(fields["cluster"]), ours()
    assert {key: (api.oldest, api.newest) for key, api in found.apis.items()} == {
        key: (api.oldest, api.newest) for key, api in table.apis.items()
    }
    assert (found.features, found.configs) == (table.features, table.configs)
    came = {outcome.came for api in found.apis.values() for outcome in api.came.values()}
    assert came <= {"served", "refused", "elsewhere", "not asked"}
    assert left_behind(cluster) == before == [[], []]


def test_conformance_survey_of_our_cluster_equals_the_recorded_kafka_answers(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, printed = asked(capsys, "--bootstrap", cluster.bootstrap, "--format", "json")
    found, theirs = survey_of(json.loads(printed)["cluster"]), kafka()
    answers = [row for row in compared(found, theirs, ()) if row.kind == "answer"]
    not_asked = [row.name for row in answers if not row.is_asked]
    assert not_asked == ["Produce 0-2", "FindCoordinator 0"]
    assert [row for row in answers if row.is_asked and not row.is_equal] == []
    assert len(answers) - len(not_asked) == len(found.apis.keys() & theirs.apis.keys())


def test_conformance_of_a_cluster_with_itself_has_no_difference(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    line = cluster.bootstrap
    code, printed = asked(capsys, "--bootstrap", line, "--against", line)
    assert code == 0
    assert ", 0 with a reason, 0 without, 2 not asked" in " ".join(printed.split())
    assert "it would create __consumer_offsets\n  answers  FindCoordinator 0\n" in printed
    code, printed = asked(capsys, "--bootstrap", line, "--against", line, "--format", "json")
    fields = json.loads(printed)
    assert (code, list(fields)) == (0, ["cluster", "against", "rows", "counts"])
    equal = len(fields["rows"]) - 2
    assert fields["counts"] == {"equal": equal, "reason": 0, "without": 0, "not asked": 2}


def test_conformance_survey_prints_outcomes_and_features(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = asked(capsys, "--bootstrap", cluster.bootstrap)
    assert code == 0
    for words in ("EndTxn", "refused INVALID_REQUEST", "feature group.version  0-1, level 1",
                  "broker keys (", "it would create __consumer_offsets"):  # fmt: skip
        assert words in printed
