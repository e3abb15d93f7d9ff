"""The OpenMetrics text of the figures, by prometheus_client; it takes long, so in a thread.

It is the only file of a broker that needs the extra `metrics`.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from ...runtime.metric_families import COUNT, COUNTER, FAMILIES, SUM, SUMMARY
from .figures import Figures, Series

__all__ = ["CONTENT_TYPE_LATEST", "page_of"]


class _OfFigures(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        for name, rows in self._figures.families.items():
            about, labels, mbean, kind = FAMILIES[name]
            words = f"{about} {mbean}" if mbean else about
            if kind == SUMMARY:
                yield _summary(name, words, labels, rows)
                continue
            of_kind = CounterMetricFamily if kind == COUNTER else GaugeMetricFamily
            family = of_kind(name, words, labels=labels)
            for values, value in rows:
                family.add_metric(values, value)
            yield family


def _summary(name: str, words: str, labels: tuple[str, ...], rows: Series) -> Metric:
    """Return a summary with quantiles, which prometheus_client's own summaries lack."""
    family = Metric(name, words, SUMMARY)
    for values, value in rows:
        named, last = dict(zip(labels, values, strict=True)), values[-1]
        if last in (COUNT, SUM):
            del named[labels[-1]]
            family.add_sample(f"{name}_{last}", named, value)
        else:
            family.add_sample(name, named, value)
    return family


def page_of(figures: Figures) -> bytes:
    """Return the OpenMetrics text of the figures."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_OfFigures(figures))
    return generate_latest(registry)
