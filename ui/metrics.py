"""From facts to the families of a metrics page; pure.

Names that Kafka's own brokers have come as the JMX exporter's example rules for Kafka give them,
with a label `broker` where each broker would say its own. What no broker of Kafka tells begins with
`oncelog_`. The table of all is in docs/metrics.md.
"""

from collections.abc import Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from . import documents
from .facts import ClusterFacts

SERIES_MAX = 20_000  # of one family; more are counted and left out


class _Page:
    """Families as they fill; a family keeps at most SERIES_MAX series."""

    def __init__(self) -> None:
        self.families: dict[str, GaugeMetricFamily] = {}
        self.left_out = 0

    def add(
        self, name: str, about: str, value: float, labels: Mapping[str, object] | None = None
    ) -> None:
        """Add one series."""
        named = labels or {}
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = GaugeMetricFamily(name, about, labels=list(named))
        if len(family.samples) >= SERIES_MAX:
            self.left_out += 1
            return
        family.add_metric([str(label) for label in named.values()], value)


def families(facts: ClusterFacts, now_ms: int) -> Iterable[Metric]:
    """Return the families of a page. What is not known is left out, rather than 0."""
    page = _Page()
    if facts.cluster is not None:
        _of_brokers(page, facts, now_ms)
        _of_partitions(page, facts)
    _of_transactions(page, facts)
    _of_groups(page, facts, now_ms)
    for part, at_ms in facts.as_of_ms.items():
        age_s = max(0, now_ms - at_ms) / 1000
        about = "Age of what is told of a part of the cluster."
        page.add("oncelog_data_age_seconds", about, age_s, {"part": part})
    about = "Series left out because a family has too many."
    page.add("oncelog_series_left_out", about, page.left_out)
    return page.families.values()


def _of_brokers(page: _Page, facts: ClusterFacts, now_ms: int) -> None:
    nodes = documents.cluster(facts, now_ms)["nodes"]
    for node in nodes:
        label = {"broker": node["node"]}
        for name, about, value in (
            ("replicamanager_leadercount", "Partitions that it leads.", node["leaders"]),
            ("replicamanager_partitioncount", "Replicas that it has.", node["replicas"]),
        ):
            page.add(f"kafka_server_{name}", about, value, label)
        behind = sum(
            len(p.isr) < len(p.replicas)
            for p in facts.partitions.values()
            if p.leader == node["node"]
        )
        about = "Partitions that it leads whose replicas are not all in sync."
        page.add("kafka_server_replicamanager_underreplicatedpartitions", about, behind, label)
        about = "Whether it is the active controller."
        is_active = float(node["is_controller"])
        page.add("kafka_controller_kafkacontroller_activecontrollercount", about, is_active, label)
        if node["answer_ms"] is not None:
            about = "How long its newest answer to this program took."
            page.add("oncelog_broker_answer_seconds", about, node["answer_ms"] / 1000, label)
    serving = sum(node["state"] == "serves" for node in nodes)
    leaderless = sum(p.leader < 0 for p in facts.partitions.values())
    for name, about, value in (
        ("activebrokercount", "Brokers that serve.", serving),
        ("fencedbrokercount", "Brokers that are fenced or away.", len(nodes) - serving),
        ("globaltopiccount", "Topics.", len({topic for topic, _ in facts.partitions})),
        ("globalpartitioncount", "Partitions.", len(facts.partitions)),
        ("offlinepartitionscount", "Partitions without a leader.", leaderless),
    ):
        page.add(f"kafka_controller_kafkacontroller_{name}", about, value)


def _of_partitions(page: _Page, facts: ClusterFacts) -> None:
    for key, info in sorted(facts.partitions.items()):
        labels: dict[str, object] = {"topic": key[0], "partition": key[1]}
        is_behind = float(len(info.isr) < len(info.replicas))
        for name, about, value in (
            ("underreplicated", "Whether not all replicas are in sync.", is_behind),
            ("insyncreplicascount", "Replicas in sync.", len(info.isr)),
            ("replicascount", "Replicas.", len(info.replicas)),
        ):
            page.add(f"kafka_cluster_partition_{name}", about, value, labels)
        offsets = facts.offsets_of(key)
        for name, about, offset in (
            ("kafka_log_log_logstartoffset", "First offset.", offsets.log_start),
            ("kafka_log_log_logendoffset", "High watermark.", offsets.high_watermark),
            ("oncelog_partition_last_stable_offset", "Last stable offset.", offsets.last_stable),
        ):
            if offset is not None:
                page.add(name, about, offset, labels)
        if offsets.high_watermark is not None:
            about = "Offsets between the last stable offset and the high watermark."
            page.add("oncelog_partition_held_back_offsets", about, offsets.held_back, labels)
        for entry in facts.replicas.get(key, ()):
            about = "Bytes of a replica."
            where = {**labels, "broker": entry.node_id}
            page.add("kafka_log_log_size", about, entry.size_bytes, where)


def _of_transactions(page: _Page, facts: ClusterFacts) -> None:
    at_ms = facts.as_of_ms.get("transactions")
    if at_ms is None:
        return
    counts: dict[str, int] = {state: 0 for state in documents.OPEN}
    for each in facts.transactions.values():
        counts[each.state] = counts.get(each.state, 0) + 1
    for state, count in sorted(counts.items()):
        about = "Transactional ids by their state."
        page.add("oncelog_transactions", about, count, {"state": state})
    starts = [
        each.start_ms
        for each in facts.transactions.values()
        if each.state in documents.OPEN and each.start_ms >= 0
    ]
    oldest_s = max(0, at_ms - min(starts, default=at_ms)) / 1000
    page.add("oncelog_transaction_oldest_open_seconds", "Age of the oldest open one.", oldest_s)
    hanging = sum(not h.is_known(key) for key, held in facts.holders.items() for h in held)
    page.add("oncelog_transactions_hanging", "Open ones that no coordinator will end.", hanging)


def _of_groups(page: _Page, facts: ClusterFacts, now_ms: int) -> None:
    for group in documents.groups(facts, now_ms)["groups"]:
        name = {"group": group["group"]}
        page.add("oncelog_group_members", "Members.", len(group["members"]), name)
        for each in group["offsets"]:
            labels = {**name, "topic": each["topic"], "partition": each["partition"]}
            for part, about in (("lag", "to the end"), ("lag_to_last_stable", "to the LSO")):
                if each[part] is not None:
                    words = f"Offsets from what is committed {about}."
                    page.add(f"oncelog_group_{part}", words, each[part], labels)
