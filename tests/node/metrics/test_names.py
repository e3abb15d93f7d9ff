"""Test that metrics have the names that the JMX exporter gives Kafka's MBeans in KRaft mode.

The rules come from examples/kafka-kraft-3_0_0.yml of jmx_exporter, at its commit 613acb27. The
special rules come first (raft-metrics, PerSec), then percentiles and counts, then plain values.
"""

import re

import pytest

from oncelog.node.metrics.figures import QUANTILES
from oncelog.runtime.metric_families import COUNTER, KAFKA, SUMMARY

PERCENTILES = ("50th", "75th", "95th", "98th", "99th", "999th")  # of a histogram of Kafka
LABELS = {"kafka_server_raft_metrics_current_state_info": ("state",)}


def exported(mbean: str) -> tuple[str, str]:
    """Return the metric's name (without a counter's suffix) and type by the rules for an MBean."""
    if found := re.fullmatch(r"kafka\.server:type=raft-metrics, attribute ([a-z-]+)", mbean):
        suffix = "_info" if found[1] == "current-state" else ""
        return f"kafka_server_raft_metrics_{found[1]}{suffix}".replace("-", "_"), "gauge"
    found = re.fullmatch(r"kafka\.([a-z.]+):type=(\w+),name=(\w+)", mbean)
    assert found is not None, mbean
    domain, kind, name = found[1].replace(".", "_"), found[2], found[3]
    if name.endswith("PerSec"):
        return f"kafka_{domain}_{kind}_{name.removesuffix('PerSec')}".lower(), COUNTER
    return f"kafka_{domain}_{kind}_{name}".lower(), SUMMARY if name.endswith("Ms") else "gauge"


@pytest.mark.parametrize("name", KAFKA)
def test_metric_name_of_kafka_equals_that_of_the_jmx_exporter(name: str) -> None:
    family = KAFKA[name]
    assert (name, family.kind) == exported(family.mbean)
    assert all(re.fullmatch("[a-z]+", label) for label in family.labels)
    if name in LABELS:
        assert family.labels == LABELS[name]


def test_metric_quantiles_are_written_like_percentiles_of_the_jmx_exporter() -> None:
    assert [*QUANTILES] == [f"0.{each.removesuffix('th')}" for each in PERCENTILES]
    assert [float(words) for words in QUANTILES] == list(QUANTILES.values())
