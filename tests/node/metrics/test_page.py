"""Test that the text of the metrics page is built in short steps."""

import pytest

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from oncelog.node.metrics import page
from oncelog.node.metrics.figures import Figures
from oncelog.node.metrics.page import page_of
from oncelog.runtime.steps import run_to_end

SERIES = 1_000


def many() -> Figures:
    """Return metrics with many series of a gauge, a counter and a summary."""
    figures = Figures()
    for number in range(SERIES):
        figures.add("oncelog_raft_term", number, number)
        figures.add("oncelog_peer_sent_bytes", number, number)
        for last in ("0.50", "count", "sum"):
            name = "kafka_network_requestmetrics_totaltimems"
            figures.add(name, number, f'Api "{number}"', last)
    return figures


def test_metrics_page_is_built_in_steps_of_few_samples() -> None:
    assert sum(1 for _ in page_of(many())) >= 5 * SERIES // page.SAMPLES_A_STEP


def test_metrics_page_built_in_steps_equals_the_page_built_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = run_to_end(page_of(many()))
    families = list(text_string_to_metric_families(made.decode()))
    assert [len(family.samples) for family in families] == [SERIES, SERIES, 3 * SERIES]
    monkeypatch.setattr(page, "SAMPLES_A_STEP", 5 * SERIES)
    assert made == run_to_end(page_of(many()))
