"""The table of a broker's configuration keys.

Each field is a key of server.properties with its type, default, bounds, and doc. Names, types, and
defaults are Kafka's. `kafka_default` is given where the default differs from Kafka's. Keys that
begin with "oncelog." exist only here. Keys that give the default of a topic config come from the
storage's table (`keys.topic_default_keys`).
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
    node_id: int = setting("node.id", INT, None, "The id of this broker.", at_least(0))
    cluster_id: str = setting(
        "cluster.id",
        STRING,
        "",
        "The id of the cluster of this node. If empty, a new cluster generates one.",
        is_shown=False,  # Kafka has no such key; DescribeCluster and Metadata show the id
    )
    listeners: tuple[str, ...] = setting(
        "listeners",
        LIST,
        "PLAINTEXT://:9092",
        "The listeners for clients, as NAME://host:port,... An empty host stands for all "
        "addresses, and needs advertised.listeners.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        "advertised.listeners",
        LIST,
        "",
        "The addresses that clients get in metadata. If empty, those of listeners.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        LIST,
        DEFAULT_MAP,
        "The security protocol of each listener, as NAME:PROTOCOL,...",
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name",
        STRING,
        "",
        "The listener whose address tools show for this broker. If empty, the first listener. "
        "Brokers do not connect to each other through listeners. If there are other listeners, "
        "clients of this listener may connect even when max.connections is reached.",
    )
    broker_rack: str = setting(
        "broker.rack", STRING, "", "The rack of this broker. Replicas are spread across racks."
    )
    log_dirs: tuple[str, ...] = setting(
        "log.dirs",
        LIST,
        None,
        "The data directory. Exactly one is supported.",
        lambda value: None if len(value) == 1 else "exactly one data directory is served",
    )
    voters: tuple[str, ...] = setting(
        "oncelog.voters",
        LIST,
        None,
        "The node ids of the whole cluster, which never change. There can be 1, 3, 4, or 5 nodes.",
    )
    peer_directory: str = setting(
        "oncelog.peer.directory",
        STRING,
        None,
        "The directory of the ipc sockets between the brokers of one host. It needs a short path "
        "and mode 0700.",
    )
    log_format: str = setting(
        "oncelog.log.format",
        STRING,
        "text",
        "The format of log lines.",
        one_of("text", "json"),
    )
    metrics_port: int = setting(
        "oncelog.metrics.port",
        INT,
        "0",
        'The port of /metrics on loopback. 0 disables it. It needs the extra "metrics".',
        between(0, 65_535),
    )
    clock: str = setting(
        "oncelog.clock",
        STRING,
        "system",
        'With "controlled", oncelog clock advance can move the clock of timeouts and retention '
        "forward.",
        one_of("system", "controlled"),
    )

    # sockets and limits
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        INT,
        str(100 * MIB),
        "The maximum size of a request.",
        at_least(1),
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        INT,
        "1024",
        "The maximum number of pending connections of a listener.",
        at_least(1),
        kafka_default="50",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT,
        "200",
        "The maximum number of connections from one address. Loopback has no limit.",
        at_least(1),
        kafka_default="2147483647",
        is_dynamic=True,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        LIST,
        "",
        "Other limits for single addresses, as ADDRESS:COUNT,... A loopback address may have a "
        "limit here.",
        _limits_of_addresses,
        is_dynamic=True,
        shown_unset="empty",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        LONG,
        "600000",
        "Connections that are idle for this time are closed.",
        at_least(1000),
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        LONG,
        str(64 * MIB),
        "The maximum bytes of requests and unsent responses of all connections. Above it, no "
        "more requests are read.",
        at_least(MIB),
        kafka_default="-1",
    )
    request_receive_timeout_ms: int = setting(
        "oncelog.request.receive.timeout.ms",
        INT,
        "30000",
        "The maximum time between the first and the last byte of a request. Then its connection "
        "is closed.",
        at_least(1000),
    )
    first_request_timeout_ms: int = setting(
        "oncelog.first.request.timeout.ms",
        INT,
        "10000",
        "The maximum time until a new connection has sent a complete request. Then it is closed.",
        at_least(1000),
    )
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms",
        INT,
        "100",
        "The delay of the response to a failed authentication.",
        at_least(0),
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        "30000",
        "The maximum time that a broker waits for the controller.",
        at_least(1),
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        INT,
        str(55 * MIB),
        "The maximum size of a fetch response.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        "1000",
        "The maximum number of fetch sessions (KIP-227). 0 disables them.",
        at_least(0),
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        INT,
        "2000",
        "The maximum number of partitions in a response to DescribeTopicPartitions.",
        at_least(1),
    )

    # liveness and leadership
    broker_session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        INT,
        "1500",
        "A broker without a heartbeat for this time is fenced.",
        at_least(100),
        kafka_default="9000",
    )
    broker_heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        INT,
        "300",
        "The interval of heartbeats to the controller.",
        at_least(10),
        kafka_default="2000",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a broker moves its leaderships to other brokers before it stops.",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether preferred leaders are elected again automatically.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        LONG,
        "300",
        "How often preferred leaders are elected again.",
        at_least(1),
    )

    # replication
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        LONG,
        "3000",
        "A follower that is behind for this time is removed from the in-sync replicas.",
        at_least(100),
        kafka_default="30000",
    )
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        INT,
        str(MIB),
        "The maximum bytes of one partition in a follower's fetch.",
        at_least(0),
    )
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes",
        INT,
        "1",
        "The minimum bytes for which a follower's fetch waits.",
        at_least(0),
    )
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        INT,
        str(10 * MIB),
        "The maximum bytes of the response to a follower's fetch.",
        at_least(0),
    )
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        INT,
        "500",
        "The maximum time that a follower's fetch waits for data.",
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
        "num.partitions",
        INT,
        "1",
        "The number of partitions of a topic that is created without one.",
        at_least(1),
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        INT,
        "-1",
        "The replication factor of a topic that is created without one. -1 means 3 in a cluster "
        "of 3 or more nodes, else 1.",
        at_least_one_or_default,
        kafka_default="1",
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        BOOLEAN,
        "true",
        "Whether an unknown topic is created when a client requests its metadata.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."
    )

    # logs
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often segments are checked for retention.",
        at_least(1),
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
        "How often the log start offsets are written to disk.",
        at_least(1),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", BOOLEAN, "true", "Whether logs are compacted."
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "The pause of the cleaner when no log needs compaction.",
        at_least(1),
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        INT,
        "86400000",
        "The state of a producer that has not written for this time is removed.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        "600000",
        "How often the state of such producers is removed.",
        at_least(1),
        shown_unset="hidden",
    )
    record_validation: str = setting(
        "oncelog.record.validation",
        STRING,
        "",
        'How much of a produced batch the leader checks. "batch" checks the header, "skeleton" '
        'also the lengths, offsets, and timestamps of records, and "full" every field. If unset, '
        'it is "batch" on loopback, else "skeleton".',
        one_of("batch", "skeleton", "full"),
    )
