"""The table of a broker's configuration keys.

Each field is a key of server.properties with its type, default, bounds, and doc. Names, types, and
defaults are Kafka's; a different default has Kafka's default beside it. Keys that begin with
"oncelog." exist only here. Keys that give the default of a topic config come from the storage's
table (`keys.topic_default_keys`).
"""

from dataclasses import dataclass

from .coordinator_keys import CoordinatorSettings
from .keys import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    at_least,
    at_least_one_or_default,
    between,
    one_of,
    setting,
)
from .listeners import DEFAULT_MAP, plain_address

MIB = 1024 * 1024
OVERRIDES_MAX, INT_MAX = 1_000, 2**31 - 1


def _limits_of_addresses(values: tuple[str, ...]) -> str | None:
    pairs = [each.rpartition(":") for each in values]
    if len(pairs) > OVERRIDES_MAX:
        return f"At most {OVERRIDES_MAX} are taken"
    if all(plain_address(host) is not None and _is_count(count) for host, _, count in pairs):
        return None
    return "Must be ADDRESS:COUNT,..., with numbers of addresses, no names"


def _is_count(text: str) -> bool:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(INT_MAX))
    return is_number and int(text) <= INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(CoordinatorSettings):
    """The typed values of the broker's keys, which are a part of `BrokerConfig`."""

    # identity and addresses
    node_id: int = setting("node.id", INT, None, "The number of this broker.", at_least(0))
    cluster_id: str = setting(
        "cluster.id",
        STRING,
        "",
        "The cluster that this node belongs to; empty: the first name wins.",
    )
    listeners: tuple[str, ...] = setting(
        "listeners", LIST, None, "Where clients connect: NAME://host:port, one for each listener."
    )
    advertised_listeners: tuple[str, ...] = setting(
        "advertised.listeners", LIST, "", "Where clients are told to connect; empty: as listeners."
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        LIST,
        DEFAULT_MAP,
        "What is spoken on each listener: NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name",
        STRING,
        "",
        "The listener by which tools know this broker; empty: the first. Brokers use no listener. "
        "Beside others, its clients find a place when max.connections are taken.",
    )
    broker_rack: str = setting(
        "broker.rack", STRING, "", "Where this broker stands; replicas are spread over racks."
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        LIST,
        None,
        "The data directory, one.",
        lambda value: None if len(value) == 1 else "exactly one data directory is served",
    )
    voters: tuple[str, ...] = setting(
        "oncelog.voters",
        LIST,
        None,
        "The node ids of the whole cluster, for its life: 1, 3, 4, or 5.",
    )
    peer_directory: str = setting(
        "oncelog.peer.directory",
        STRING,
        None,
        "Where the brokers of one host meet (ipc sockets); a short path, mode 0700.",
    )
    log_format: str = setting(
        "oncelog.log.format",
        STRING,
        "text",
        "Of the lines of the log.",
        one_of("text", "json"),
    )
    metrics_port: int = setting(
        "oncelog.metrics.port",
        INT,
        "0",
        "Where /metrics is, on loopback; 0: nowhere. Needs the extra metrics.",
        between(0, 65_535),
    )
    clock: str = setting(
        "oncelog.clock",
        STRING,
        "system",
        "controlled: what waits for its time to be over can be made older (oncelog clock advance).",
        one_of("system", "controlled"),
    )

    # sockets and limits
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, str(100 * MIB), "The largest request.", at_least(1)
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        INT,
        "1024",
        "Connections not accepted yet.",
        at_least(1),
        kafka_default="50",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT,
        "200",
        "Connections at a time from one address; loopback is not counted.",
        at_least(1),
        kafka_default="2147483647",
        is_dynamic=True,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        LIST,
        "",
        "ADDRESS:COUNT,...: limits of single addresses; a loopback one that is named is counted.",
        _limits_of_addresses,
        is_dynamic=True,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "A connection silent for so long is closed.",
        at_least(1000),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        LONG,
        str(64 * MIB),
        "Bytes of requests and unsent answers held for all connections; above it reading pauses.",
        at_least(MIB),
        kafka_default="-1",
    )
    request_receive_timeout_ms: int = setting(
        "oncelog.request.receive.timeout.ms",
        INT,
        "30000",
        "A request that is not complete so long after its first byte closes its connection.",
        at_least(1000),
    )
    first_request_timeout_ms: int = setting(
        "oncelog.first.request.timeout.ms",
        INT,
        "10000",
        "A connection without a complete request so long after it was made is closed.",
        at_least(1000),
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        "How long the answer to a failed login waits.",
        at_least(0),
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        "30000",
        "How long a broker waits for the controller.",
        at_least(1),
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", INT, str(55 * MIB), "The largest answer to a fetch.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "Fetch sessions at a time (KIP-227); 0: none.",
        at_least(0),
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "Partitions in one answer of DescribeTopicPartitions.",
        at_least(1),
    )

    # liveness and leadership
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        INT,
        "1500",
        "A broker not heard of for so long is dead.",
        at_least(100),
        kafka_default="9000",
    )
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        INT,
        "300",
        "Between two heartbeats to the controller.",
        at_least(10),
        kafka_default="2000",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", BOOLEAN, "true", "Hand over what it leads before it stops."
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Give leadership back to preferred leaders.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often that is done.",
        at_least(1),
    )

    # replication
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        LONG,
        "3000",
        "A follower behind for so long leaves the in-sync replicas.",
        at_least(100),
        kafka_default="30000",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", INT, str(MIB), "Wanted of one partition at a time.", at_least(0)
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", INT, "1", "A follower's fetch waits for so many.", at_least(0)
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", INT, str(10 * MIB), "Wanted in one answer.", at_least(0)
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "How long a follower's fetch may wait.",
        at_least(1),
    )
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        INT,
        "100",
        "The pause after a failed fetch.",
        at_least(0),
        kafka_default="1000",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        "5000",
        "How often the high watermarks are written to disk.",
        at_least(1),
    )

    # topics
    num_partitions: int = setting(
        "num.partitions", INT, "1", "Partitions of a topic made without a count.", at_least(1)
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        INT,
        "-1",
        "Replicas of a topic made without a factor; -1: 3 where there are so many nodes, else 1.",
        at_least_one_or_default,
        kafka_default="1",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, "true", "Make a topic when a client asks for it."
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."
    )

    # logs
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", LONG, "300000", "How often old segments go.", at_least(1)
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often the recovery points are written to disk.",
        at_least(1),
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        "60000",
        "How often the log starts are written to disk.",
        at_least(1),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", BOOLEAN, "true", "Whether compacted topics are compacted."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", LONG, "15000", "The pause when no log needs it.", at_least(1)
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "A producer silent for so long is forgotten.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "How often silent producers are looked for.",
        at_least(1),
    )
    record_validation: str = setting(
        "oncelog.record.validation",
        STRING,
        "",
        "How far the leader looks into a batch; unset: batch on loopback, else skeleton.",
        one_of("batch", "skeleton", "full"),
    )
