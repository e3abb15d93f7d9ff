"""The metrics of one broker at one time, collected from memory in steps."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from ...coordinator.raft.engine import RaftEngine
from ...replication.peer.transport import PeerTransport
from ...runtime.metric_families import COUNT, FAMILIES, SERIES_MAX, SUM
from ...runtime.steps import StepCounter, Steps
from ...wire.messages.apis import API_NAMES
from ..listener.answer_times import AnswerTimes
from ..listener.request_time import FETCH, PRODUCE
from ..listener.server import KafkaServer
from ..loop_watchdog import LoopWatchdog
from ..services import BrokerServices
from ..traffic import Traffic

METADATA_GROUP = 0
SERVES = 3  # a value of Kafka's BrokerState
ITEMS_A_STEP = 40  # some 0.4 ms
ALL_TOPICS = ""  # stands for the sum of all topics
REQUEST_NAMES = {FETCH: "FetchConsumer"}  # Kafka's name; replicas fetch over the peer link
QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
Series = list[tuple[tuple[str, ...], float]]


@dataclass(slots=True)
class Figures:
    """The series of each metric family, with labels and values."""

    families: dict[str, Series] = field(default_factory=dict[str, Series])
    left_out: int = 0

    def add(self, name: str, value: float, *labels: object) -> None:
        """Add a series to a metric family."""
        rows = self.families.get(name)
        if rows is None:
            assert name in FAMILIES, name
            rows = self.families[name] = []
        if len(rows) < SERIES_MAX:
            rows.append((tuple(map(str, labels)), value))
        else:
            self.left_out += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSources:
    """The parts of a broker from which the metrics are collected."""

    services: BrokerServices
    engine: RaftEngine
    transport: PeerTransport
    server: KafkaServer
    watchdog: LoopWatchdog

    @property
    def is_controller(self) -> bool:
        """Return whether this broker is the active controller."""
        return self.engine.groups[METADATA_GROUP].is_leader


def taking(sources: FigureSources, hanging: int = 0) -> Steps[Figures]:
    """Collect all metrics. A change between two steps may appear in the later metrics only.

    hanging: the number of transactions that have been open for longer than any timeout allows.
    """
    figures = Figures()
    counter = StepCounter(ITEMS_A_STEP)
    _process(figures, sources)
    _raft(figures, sources)
    figures.add("oncelog_transactions_hanging", hanging)
    yield
    for part in (_requests, _traffic, _partitions, _topics, _groups, _transactions):
        for items in part(figures, sources):
            if counter.ends_steps(items):
                yield
    figures.add("oncelog_series_left_out", figures.left_out)
    return figures


def _process(figures: Figures, sources: FigureSources) -> None:
    process = psutil.Process()
    used, loop = process.cpu_times(), sources.watchdog.metrics()
    figures.add("oncelog_process_cpu_seconds", used.user + used.system)
    figures.add("oncelog_process_resident_memory_bytes", process.memory_info().rss)
    figures.add("oncelog_loop_stalls", loop["stalls"])
    figures.add("oncelog_loop_starved", loop["starved"])
    figures.add("oncelog_loop_longest_turn_seconds", loop["longest_ms"] / 1_000)
    figures.add("oncelog_client_connections", sources.server.connection_count)
    for peer, count in sorted(sources.transport.bytes_sent.items()):
        figures.add("oncelog_peer_sent_bytes", count, peer)
    for peer, count in sorted(sources.transport.bytes_received.items()):
        figures.add("oncelog_peer_received_bytes", count, peer)
    for (kind, reason), count in sorted(sources.services.events.counts.items()):
        figures.add("oncelog_events", count, kind, reason)
    figures.add("kafka_server_kafkaserver_brokerstate", SERVES)


def _raft(figures: Figures, sources: FigureSources) -> None:
    for number, group in sources.engine.groups.items():
        status = group.status()
        committed = status.commit_index
        figures.add("oncelog_raft_term", status.term, number)
        figures.add("oncelog_raft_leader", group.is_leader, number)
        figures.add("oncelog_raft_uncommitted_entries", status.log_end - 1 - committed, number)
        figures.add("oncelog_raft_unapplied_entries", committed - status.applied_index, number)
        if number == METADATA_GROUP:
            name, leader = "kafka_server_raft_metrics_", status.leader_id
            figures.add(f"{name}current_state_info", 1, _state(is_leader=group.is_leader))
            figures.add(f"{name}current_leader", -1 if leader is None else leader)
            figures.add(f"{name}current_epoch", status.term)
            figures.add(f"{name}high_watermark", committed)
            figures.add(f"{name}log_end_offset", status.log_end)


def _state(*, is_leader: bool) -> str:
    return "leader" if is_leader else "follower"


def _requests(figures: Figures, sources: FigureSources) -> Iterator[int]:
    """Add the metrics of requests, and yield the cost of the work after each API.

    The functions below also yield costs. The caller ends a step after a cost of ITEMS_A_STEP.
    """
    family = "kafka_network_requestmetrics_totaltimems"
    for api_key, times in sources.server.times.read():
        name = REQUEST_NAMES.get(api_key, API_NAMES[api_key])
        figures.add("kafka_network_requestmetrics_requests", times.count, name)
        percentiles = times.percentiles(tuple(QUANTILES.values()))
        for quantile, value_s in zip(QUANTILES, percentiles, strict=True):
            figures.add(family, value_s * 1_000, name, quantile)
        figures.add(family, times.count, name, COUNT)
        figures.add(family, times.total_s * 1_000, name, SUM)
        yield 5


def _traffic(figures: Figures, sources: FigureSources) -> Iterator[int]:
    traffic = sources.services.replicas.traffic
    for name, counts in [(ALL_TOPICS, traffic.total), *traffic.topics()]:
        for family, count in (
            ("messagesin", counts.messages_in),
            ("bytesin", counts.bytes_in),
            ("bytesout", counts.bytes_out),
            ("totalproducerequests", counts.produced),
            ("failedproducerequests", counts.produce_failed),
            ("totalfetchrequests", counts.fetched),
        ):
            figures.add(f"kafka_server_brokertopicmetrics_{family}", count, name)
        yield 1


def _partitions(figures: Figures, sources: FigureSources) -> Iterator[int]:
    led = behind = below = failed = 0
    hosted = list(sources.services.replicas)
    for partition in hosted:
        log, where = partition.log, (partition.topic, partition.index)
        failed += log.is_failed
        figures.add("kafka_log_log_logstartoffset", log.log_start_offset, *where)
        figures.add("kafka_log_log_logendoffset", log.log_end_offset, *where)
        figures.add("kafka_log_log_numlogsegments", len(log.segments), *where)
        figures.add("kafka_log_log_size", log.segments.size_bytes, *where)
        leader = partition.leader
        if leader is not None:
            in_sync, replicas = len(leader.isr), len(partition.replicas)
            led += 1
            behind += in_sync < replicas
            below += in_sync < min(leader.min_insync_replicas, replicas)
            figures.add("kafka_cluster_partition_underreplicated", in_sync < replicas, *where)
            figures.add("kafka_cluster_partition_insyncreplicascount", in_sync, *where)
            figures.add("kafka_cluster_partition_replicascount", replicas, *where)
            figures.add("oncelog_partition_high_watermark", log.high_watermark, *where)
            if (stable := log.known_last_stable_offset) is not None:
                held_back = log.high_watermark - stable
                figures.add("kafka_cluster_partition_laststableoffsetlag", held_back, *where)
                figures.add("oncelog_partition_last_stable_offset", stable, *where)
        yield 1 + len(log.segments) // 8
    name = "kafka_server_replicamanager_"
    figures.add(f"{name}leadercount", led)
    figures.add(f"{name}partitioncount", len(hosted))
    figures.add(f"{name}underreplicatedpartitions", behind)
    figures.add(f"{name}underminisrpartitioncount", below)
    figures.add(f"{name}offlinereplicacount", failed)


def _topics(figures: Figures, sources: FigureSources) -> Iterator[int]:
    """Add the metrics of all topics and brokers if this broker is the active controller.

    Any other broker adds only ActiveControllerCount, which is 0.
    """
    name = "kafka_controller_kafkacontroller_"
    figures.add(f"{name}activecontrollercount", sources.is_controller)
    if not sources.is_controller:
        return
    state, count, leaderless = sources.services.state, 0, 0
    names = list(state.topics)
    for each in names:
        topic = state.topics.get(each)
        if topic is not None:
            count += len(topic.partitions)
            leaderless += sum(partition.leader < 0 for partition in topic.partitions)
            yield 1 + len(topic.partitions) // 100
    serving = len(state.live_brokers)
    figures.add(f"{name}activebrokercount", serving)
    figures.add(f"{name}fencedbrokercount", len(state.brokers) - serving)
    figures.add(f"{name}globaltopiccount", len(names))
    figures.add(f"{name}globalpartitioncount", count)
    figures.add(f"{name}offlinepartitionscount", leaderless)


def _groups(figures: Figures, sources: FigureSources) -> Iterator[int]:
    replicas, groups, offsets = sources.services.replicas, 0, 0
    for shard in list(sources.services.groups.shards):
        groups += len(shard.groups)
        offsets += shard.offsets.size
        for group_id in list(shard.offsets.group_ids()):
            yield 1
            for topic, index in shard.offsets.committed(group_id):
                value = shard.offsets.fetch(group_id, topic, index)
                if value is None:  # deleted since the last step
                    continue
                labels = group_id, topic, index
                figures.add("oncelog_group_committed_offset", value.offset, *labels)
                hosted = replicas.get(topic, index)
                if hosted is not None and hosted.leader is not None:
                    stable = hosted.log.known_last_stable_offset
                    if stable is not None:
                        lag = max(0, stable - value.offset)
                        figures.add("oncelog_group_lag_to_last_stable", lag, *labels)
                yield 1
    name = "kafka_coordinator_group_groupmetadatamanager_"
    figures.add(f"{name}numgroups", groups)
    figures.add(f"{name}numoffsets", offsets)


def _transactions(figures: Figures, sources: FigureSources) -> Iterator[int]:
    counts = dict.fromkeys(OPEN_STATES, 0)
    ids, now_ms = 0, sources.services.clock.wall_ms()
    oldest_ms = now_ms
    for leader in list(sources.services.transactions.leaders):
        shard = leader.shard
        ids += len(shard)
        for name in dict.fromkeys((*shard.open_ids, *shard.prepared_ids)):
            record = shard.get(name)
            if record is not None and record.state.kafka_name in counts:
                counts[record.state.kafka_name] += 1
                oldest_ms = min(oldest_ms, record.start_ms)
            yield 1
    for state, count in counts.items():
        figures.add("oncelog_transactions", count, state)
    figures.add("oncelog_transactional_ids", ids)
    figures.add("oncelog_transaction_oldest_open_seconds", (now_ms - oldest_ms) / 1_000)


def traffic_in_short(traffic: Traffic, requests: AnswerTimes) -> dict[str, float]:
    """Return the sums of all topics, and the number and times of Produce and Fetch requests.

    The times are the median and the 99th percentile in milliseconds.
    """
    total = traffic.total
    found: dict[str, float] = {
        "messages_in": total.messages_in,
        "bytes_in": total.bytes_in,
        "bytes_out": total.bytes_out,
    }
    times = dict(requests.read())
    for api_key, name in ((PRODUCE, "produce"), (FETCH, "fetch")):
        if api_key in times:
            median_s, late_s = times[api_key].percentiles((0.5, 0.99))
            found[f"{name}_requests"] = times[api_key].count
            found[f"{name}_p50_ms"], found[f"{name}_p99_ms"] = median_s * 1_000, late_s * 1_000
    return found
