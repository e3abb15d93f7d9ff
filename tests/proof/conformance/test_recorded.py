"""Test the survey of Apache Kafka 4.4, the recorded one and a new one."""

from fnmatch import fnmatchcase

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.blocking_admin import blocking_admin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.conformance.compare import REASONS, compared, counts, reasons_for
from oncelog.proof.conformance.harmless import HARMLESS
from oncelog.proof.conformance.outcomes import AskOutcome
from oncelog.proof.conformance.surveying import survey
from oncelog.wire.messages.apis import APIS

from ...wire.field_names import check_names
from .recorded import FILE, kafka, ours, running_kafka, written


def test_conformance_difference_from_recorded_kafka_always_has_a_reason() -> None:
    rows = compared(ours(), kafka(), reasons_for(ours()))
    assert [row for row in rows if row.verdict == "without"] == []
    assert counts(rows)["equal"] > 150


def test_conformance_reason_list_has_no_unused_entry() -> None:
    different = [row for row in compared(ours(), kafka(), ()) if not row.is_equal]
    idle = [
        reason
        for reason in REASONS
        if not any(
            reason.kind == row.kind and fnmatchcase(row.name, reason.pattern) for row in different
        )
    ]
    assert idle == []


def test_conformance_harmless_request_of_each_api_has_only_existing_fields() -> None:
    assert HARMLESS.keys() == APIS.keys()
    for key, values in HARMLESS.items():
        if key > 1:  # Produce and Fetch have classes of their own
            check_names(key, "request", values)


def test_conformance_harmless_requests_open_no_share_session() -> None:
    """Epoch 0 would open a share session. Epoch -1 closes one, and here none exists."""
    share_fetch, share_acknowledge = 78, 79
    epochs = [HARMLESS[key]["share_session_epoch"] for key in (share_fetch, share_acknowledge)]
    assert epochs == [-1, -1]


def test_conformance_record_has_a_kafka_answer_for_all_but_four_versions() -> None:
    came = [outcome.came for api in kafka().apis.values() for outcome in api.came.values()]
    assert set(came) <= {"served", "refused", "elsewhere", "not asked"}
    assert came.count("not asked") == 4  # Produce 0-2, FindCoordinator 0
    assert kafka().apis[94].came == {0: AskOutcome("refused", "CONTROLLER_ID_NOT_REGISTERED")}


@pytest.mark.kafka
@pytest.mark.cluster
def test_conformance_of_apache_kafka_equals_its_record_and_ours_conforms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_kafka() as bootstrap, Cluster(1) as cluster:
        assert written(survey({"bootstrap.servers": bootstrap}, print)) == FILE.read_text()
        capsys.readouterr()
        asked = ["conformance", "--bootstrap", cluster.bootstrap, "--against", bootstrap]
        assert run(asked) == 0, capsys.readouterr().out
        assert ", 0 without, 2 not asked" in " ".join(capsys.readouterr().out.split())
        for line in (bootstrap, cluster.bootstrap):
            with blocking_admin({"bootstrap.servers": line}, timeout_ms=10_000) as admin:
                assert admin.describe_topics() == []
                assert list(admin.groups.list_groups()) == []
