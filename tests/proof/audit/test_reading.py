"""Test the audit of real log files, and of a live cluster."""

import asyncio
import json
from dataclasses import replace

import pytest

from oncelog.client import BlockingProducer
from oncelog.pipeline.sink import decision
from oncelog.proof.audit import reading
from oncelog.proof.audit.__main__ import main
from oncelog.proof.audit.audit import audit
from oncelog.proof.audit.reading import log_directories, read_checkpoint

from ..judge.edit import NoPlace
from ..judge.transactions import write
from .audited_logs import lightly
from .log_files import LOG_STARTS, write_logs
from .log_mutations import BROUGHT_ALONG, MUTATIONS
from .model_log import EDGES, ModelLog

pytestmark = pytest.mark.spark_slow
OF_READERS = {"aborted-visible", "committed-hidden", "open-visible", "phantom-read"}
OF_LOGS = sorted(MUTATIONS.keys() - OF_READERS)


def falsified(name: str, number: int) -> ModelLog:
    """Return a log with the anomaly `name` in both copies, or in one copy for a divergence."""
    is_divergence = name == "replica-divergence"
    for seed in range(50):
        first = 1_000 + number * 50 + seed
        log_model = ModelLog(first, f"planted-{name}", replicas=2 if is_divergence else 0)
        try:
            MUTATIONS[name](log_model)
        except NoPlace:
            continue
        if not is_divergence:
            log_model.replicas = 2
            log_model.rows = [replace(row, replica=n) for n in (1, 2) for row in log_model.rows]
        return log_model
    raise AssertionError(f"no place for {name}")


@pytest.fixture(scope="module")
def found(spark, tmp_path_factory):
    """Return the anomalies of each topic that the audit finds in files."""
    folder = tmp_path_factory.mktemp("logs")
    for number, edge in enumerate(EDGES):
        write_logs(ModelLog(number, f"clean-{edge}", edge, replicas=3), folder)
    for number, name in enumerate(OF_LOGS):
        write_logs(falsified(name, number), folder)
    nodes = {int(node.name.removeprefix("node-")): node for node in folder.iterdir()}
    assert ("clean-wrap", 0) in read_checkpoint(nodes[1] / LOG_STARTS)
    audit_input = log_directories(spark, nodes, [], compacted=["clean-compacted"], open_s_max=60)
    names: dict[str, set[str]] = {}
    with lightly(spark):
        result = audit(audit_input, chunk_size=64)
        for row in result.violations.collect():
            names.setdefault(row["topic"], set()).add(row["anomaly"])
        result.close()
    return names


def test_audit_of_undamaged_log_files_reports_no_violation(found):
    assert {topic: names for topic, names in found.items() if topic.startswith("clean")} == {}


@pytest.mark.parametrize("name", OF_LOGS)
def test_audit_of_log_files_with_a_planted_anomaly_reports_the_anomaly(found, name):
    may_be = BROUGHT_ALONG.get(name, set()) - OF_READERS
    assert {name} <= found[f"planted-{name}"] <= {name} | may_be


def test_audit_of_a_live_topic_counts_records_and_transactions(spark, cluster, admin, capsys):
    admin.create_topic("audited", partitions=2)
    asyncio.run(write(cluster.bootstrap, "audited", plain_records=500))
    asked = ["--bootstrap", cluster.bootstrap, "--topic", "audited", "--format", "json"]
    with lightly(spark):
        assert main([*asked, "--open-seconds", "60"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (printed["records"], printed["markers"], printed["violations"]) == (512, 12, {})
    assert (printed["committed"], printed["aborted"], printed["open"]) == (8, 4, 0)


def test_audit_of_a_directory_without_a_cluster_or_logs_is_refused_with_the_reason(
    spark, tmp_path, capsys
):
    assert main(["--cluster", str(tmp_path)]) == 2
    assert "not the directory of a cluster" in capsys.readouterr().err
    assert main(["--logs", f"1={tmp_path / 'none'}"]) == 2
    assert "There is no directory" in capsys.readouterr().err


def refused(capsys, *asked: str) -> str:
    """Run an audit that fails with exit code 2, and return its only error line."""
    assert main(list(asked)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    return line


def test_audit_with_a_wrong_argument_reports_an_error_in_one_line(spark, tmp_path, capsys):
    assert "begins with the number of a node" in refused(capsys, "--logs", f"x={tmp_path}")
    assert "is not NAME=VALUE" in refused(capsys, "--logs", str(tmp_path))
    (tmp_path / "made").mkdir()
    asked = ("--logs", f"1={tmp_path}", "--out", str(tmp_path / "made"))
    assert "exists already" in refused(capsys, *asked)
    assert "no partition of what is asked for" in refused(capsys, "--logs", f"1={tmp_path}")


def test_audit_of_a_damaged_segment_names_the_file(spark, tmp_path, capsys):
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"\x00" * 200)
    (folder / f"{100:020}.log").touch()
    line = refused(capsys, "--logs", f"1={tmp_path}")
    assert f"{folder}/{0:020}.log at byte 0" in line


def test_audit_of_an_absent_cluster_or_topic_or_of_records_deleted_meanwhile_is_refused(
    spark, cluster, admin, capsys, monkeypatch
):
    there = ("--bootstrap", cluster.bootstrap)
    assert "nowhere" in refused(capsys, *there, "--topic", "nowhere")
    slow = ("--client", "request.timeout.ms=500")
    assert refused(capsys, "--bootstrap", "127.0.0.1:1", *slow, "--topic", "audited")
    admin.create_topic("vanishing", partitions=1)
    with BlockingProducer(cluster.bootstrap) as producer:
        for number in range(20):
            producer.send("vanishing", b"%d" % number, partition=0)
    first = reading.shown

    def shown_and_removed(frame):
        seen = first(frame).persist()
        seen.count()
        admin.delete_records("vanishing", 0, 10)
        return seen

    monkeypatch.setattr(reading, "shown", shown_and_removed)
    assert "begins at 10" in refused(capsys, *there, "--topic", "vanishing")


def test_audit_treats_the_decision_topic_as_compacted():
    assert decision.TOPIC in reading.COMPACTED
