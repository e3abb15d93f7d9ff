"""Conversion of facts to the families of a metrics page, without I/O.

Metrics of Kafka's own brokers have the names of the JMX exporter's example rules for Kafka, with a
label `broker` for metrics of a broker. Other names begin with `oncelog_`. docs/metrics.md lists all
metrics.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from ..runtime.metric_families import FAMILIES, OF_CLUSTER, SERIES_MAX
from . import documents
from .facts import ClusterFacts

NO_LABELS: Mapping[str, object] = {}


class _Page:
    """The metric families of a page, each with at most SERIES_MAX series."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily] = {}
        self.left_out = 0

    def add(self, name: str, value: float, labels: Mapping[str, object] = NO_LABELS) -> None:
        """Add a series to a metric family, or count it in `left_out` if the family is full."""
        family = self.families.get(name)
        if family is None:
            about = (FAMILIES | OF_CLUSTER)[name].about
            family = self.families[name] = GaugeMetricFamily(name, about, labels=list(labels))
        if len(family.samples) >= SERIES_MAX:
            self.left_out += 1
            return
        family.add_metric([str(label) for label in labels.values()], value)


def families(facts: ClusterFacts, now_ms: int) -> Iterable[Metric]:
    """Return the metric families of a page. An unknown value is left out, because it is not 0."""
    page = _Page()
    if facts.cluster is not None:
        _of_brokers(page, facts, now_ms)
        _of_partitions(page, facts)
    _of_transactions(page, facts)
    _of_groups(page, facts, now_ms)
    for part, at_ms in facts.as_of_ms.items():
        age_s = max(0, now_ms - at_ms) / 1000
        page.add("oncelog_data_age_seconds", age_s, {"part": part})
    page.add("oncelog_series_left_out", page.left_out)
    return page.families.values()


def _of_brokers(page: _Page, facts: ClusterFacts, now_ms: int) -> None:
    nodes = documents.cluster(facts, now_ms)["nodes"]
    for node in nodes:
        label = {"broker": node["node"]}
        page.add("kafka_server_replicamanager_leadercount", node["leaders"], label)
        page.add("kafka_server_replicamanager_partitioncount", node["replicas"], label)
        behind = sum(
            len(p.isr) < len(p.replicas)
            for p in facts.partitions.values()
            if p.leader == node["node"]
        )
        page.add("kafka_server_replicamanager_underreplicatedpartitions", behind, label)
        is_active = float(node["is_controller"])
        page.add("kafka_controller_kafkacontroller_activecontrollercount", is_active, label)
        if node["answer_ms"] is not None:
            page.add("oncelog_broker_answer_seconds", node["answer_ms"] / 1000, label)
    serving = sum(node["state"] == "serves" for node in nodes)
    leaderless = sum(p.leader < 0 for p in facts.partitions.values())
    for name, value in (
        ("activebrokercount", serving),
        ("fencedbrokercount", len(nodes) - serving),
        ("globaltopiccount", len({topic for topic, _ in facts.partitions})),
        ("globalpartitioncount", len(facts.partitions)),
        ("offlinepartitionscount", leaderless),
    ):
        page.add(f"kafka_controller_kafkacontroller_{name}", value)


def _of_partitions(page: _Page, facts: ClusterFacts) -> None:
    for key, info in sorted(facts.partitions.items()):
        labels: dict[str, object] = {"topic": key[0], "partition": key[1]}
        is_behind = float(len(info.isr) < len(info.replicas))
        page.add("kafka_cluster_partition_underreplicated", is_behind, labels)
        page.add("kafka_cluster_partition_insyncreplicascount", len(info.isr), labels)
        page.add("kafka_cluster_partition_replicascount", len(info.replicas), labels)
        offsets = facts.offsets_of(key)
        for name, offset in (
            ("kafka_log_log_logstartoffset", offsets.log_start),
            ("kafka_log_log_logendoffset", offsets.high_watermark),
            ("oncelog_partition_last_stable_offset", offsets.last_stable),
        ):
            if offset is not None:
                page.add(name, offset, labels)
        if offsets.high_watermark is not None:
            page.add("oncelog_partition_held_back_offsets", offsets.held_back, labels)
        for entry in facts.replicas.get(key, ()):
            page.add("kafka_log_log_size", entry.size_bytes, {**labels, "broker": entry.node_id})


def _of_transactions(page: _Page, facts: ClusterFacts) -> None:
    at_ms = facts.as_of_ms.get("transactions")
    if at_ms is None:
        return
    counts: dict[str, int] = {state: 0 for state in documents.OPEN}
    for each in facts.transactions.values():
        counts[each.state] = counts.get(each.state, 0) + 1
    for state, count in sorted(counts.items()):
        page.add("oncelog_transactions", count, {"state": state})
    starts = [
        each.start_ms
        for each in facts.transactions.values()
        if each.state in documents.OPEN and each.start_ms >= 0
    ]
    oldest_s = max(0, at_ms - min(starts, default=at_ms)) / 1000
    page.add("oncelog_transaction_oldest_open_seconds", oldest_s)
    hanging = sum(not h.is_known(key) for key, held in facts.holders.items() for h in held)
    page.add("oncelog_transactions_hanging", hanging)


def _of_groups(page: _Page, facts: ClusterFacts, now_ms: int) -> None:
    for group in documents.groups(facts, now_ms)["groups"]:
        name = {"group": group["group"]}
        page.add("oncelog_group_members", len(group["members"]), name)
        for each in group["offsets"]:
            labels = {**name, "topic": each["topic"], "partition": each["partition"]}
            for part in ("lag", "lag_to_last_stable"):
                if each[part] is not None:
                    page.add(f"oncelog_group_{part}", each[part], labels)
