"""Test the names and values of the metrics page, which Prometheus' client library parses."""

import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from oncelog.client.admin import LogDirEntry
from oncelog.ui.facts import ClusterFacts

from .known_facts import KEY, NOW_MS, facts, group

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from oncelog.ui import metrics as page
from oncelog.ui.metrics_server import MetricsServer

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def values(known: ClusterFacts) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in page.families(known, NOW_MS)
        for sample in family.samples
    }


def test_metric_families_have_kafka_names_and_include_both_group_lags() -> None:
    found = values(facts(replicas={KEY: (LogDirEntry(2, "/d", *KEY, 500, 0),)}))
    at = (("partition", "0"), ("topic", "orders"))
    of_group = (("group", "readers"), *at)
    assert found["kafka_log_log_logendoffset", at] == 30
    assert found["oncelog_partition_last_stable_offset", at] == 10
    assert found["oncelog_partition_held_back_offsets", at] == 20
    assert found["oncelog_group_lag", of_group] == 20
    assert found["oncelog_group_lag_to_last_stable", of_group] == 0
    assert found["oncelog_transactions", (("state", "Ongoing"),)] == 1
    assert found["oncelog_transaction_oldest_open_seconds", ()] == 20
    assert found["kafka_log_log_size", (("broker", "2"), *at)] == 500
    assert found["kafka_controller_kafkacontroller_activecontrollercount", (("broker", "1"),)] == 1
    assert found["kafka_controller_kafkacontroller_activebrokercount", ()] == 3
    assert found["kafka_server_replicamanager_leadercount", (("broker", "1"),)] == 1


def test_metrics_of_unknown_figures_are_left_out() -> None:
    assert [name for name, _ in values(ClusterFacts())] == ["oncelog_series_left_out"]


def test_metric_docs_list_the_names_of_all_families() -> None:
    pages = Path(__file__).parents[2] / "docs"
    _, _, text = (pages / "metrics.md").read_text().partition("## Of any cluster")
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    whole = facts(
        replicas={KEY: (LogDirEntry(2, "/d", *KEY, 500, 0),)},
        answer_ms={1: 2.0},
        groups={"g": group()},
    )
    assert sorted(listed) == sorted({name for name, _ in values(whole)})


def test_metrics_beyond_the_series_limit_are_counted_as_left_out(monkeypatch) -> None:
    monkeypatch.setattr(page, "SERIES_MAX", 2)
    found = values(facts())
    assert sum(name == "kafka_server_replicamanager_leadercount" for name, _ in found) == 2
    assert found["oncelog_series_left_out", ()] > 0


def test_metrics_page_is_parsed_by_the_prometheus_client_and_served_only_at_its_address() -> None:
    server = MetricsServer(facts, None)
    server.start()
    try:
        request = urllib.request.Request(server.url, headers={"Accept": OPEN_METRICS})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            names = {f.name for f in text_string_to_metric_families(answer.read().decode())}
        assert {"kafka_log_log_logendoffset", "oncelog_group_lag"} <= names
        for url, host in ((server.url, "evil.example"), (server.url[:-1], "")):
            headers = {"Host": host} if host else {}
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20)
            refused.value.close()
            assert refused.value.code == (403 if host else 404)
    finally:
        server.close()
