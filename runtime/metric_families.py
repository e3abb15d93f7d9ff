"""The table of metric families, with their names, descriptions, and Kafka's MBeans.

A name is derived from an MBean by the rules of the JMX exporter's example for KRaft
(`kafka-kraft-3_0_0.yml`): domain, type and name or attribute, joined in lower case. A broker's
metrics page and `oncelog metrics` both use these names and descriptions.
"""

from typing import NamedTuple

GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"
COUNT, SUM = "count", "sum"  # used instead of a quantile of a summary
SERIES_MAX = 20_000  # the limit of one family; further series are counted and omitted


class Family(NamedTuple):
    """A metric family; the samples of a counter have the suffix `_total`, but not its name.

    The last label of a summary is the quantile, or COUNT or SUM.
    """

    about: str
    labels: tuple[str, ...] = ()
    mbean: str = ""  # "" if Kafka has none
    kind: str = GAUGE


PARTITION = ("topic", "partition")
GROUP_PARTITION = ("group", "topic", "partition")
RAFT_GROUP = ("raft_group",)
PEER = ("peer",)
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_PARTITION = "kafka.cluster:type=Partition,name="
_LOG = "kafka.log:type=Log,name="
_RAFT = "kafka.server:type=raft-metrics, attribute "
_TRAFFIC = "kafka.server:type=BrokerTopicMetrics,name="
_REQUESTS = "kafka.network:type=RequestMetrics,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="


def _plain(prefix: str, bean: str, rows: dict[str, str], *labels: str) -> dict[str, Family]:
    """Return families named like the MBean, in lower case; rows are MBean name -> description."""
    return {
        prefix + name.lower().replace("-", "_"): Family(about, labels, bean + name)
        for name, about in rows.items()
    }


KAFKA: dict[str, Family] = {
    **_plain(
        "kafka_server_kafkaserver_",
        "kafka.server:type=KafkaServer,name=",
        {"BrokerState": "3: it serves."},
    ),
    **_plain(
        "kafka_server_replicamanager_",
        _REPLICAS,
        {
            "LeaderCount": "Partitions that it leads.",
            "PartitionCount": "Replicas that it has.",
            "UnderReplicatedPartitions": "Led partitions whose replicas are not all in sync.",
            "UnderMinIsrPartitionCount": "Led partitions with fewer in sync than required.",
            "OfflineReplicaCount": "Replicas whose log has failed.",
        },
    ),
    "kafka_server_raft_metrics_current_state_info": Family(
        "Its part in the Raft group of the metadata.", ("state",), _RAFT + "current-state"
    ),
    **_plain(
        "kafka_server_raft_metrics_",
        _RAFT,
        {
            "current-leader": "The leader of the metadata, -1 for none.",
            "current-epoch": "The term of the metadata.",
            "high-watermark": "The last committed entry of the metadata.",
            "log-end-offset": "The end of the log of the metadata.",
        },
    ),
    **_plain(
        "kafka_controller_kafkacontroller_",
        _CONTROLLER,
        {
            "ActiveControllerCount": "Whether it is the active controller.",
            "ActiveBrokerCount": "Brokers that serve.",
            "FencedBrokerCount": "Brokers that are fenced or away.",
            "GlobalTopicCount": "Topics.",
            "GlobalPartitionCount": "Partitions.",
            "OfflinePartitionsCount": "Partitions without a leader.",
        },
    ),
    **_plain(
        "kafka_cluster_partition_",
        _PARTITION,
        {
            "UnderReplicated": "Whether not all replicas are in sync.",
            "InSyncReplicasCount": "Replicas in sync.",
            "ReplicasCount": "Replicas.",
            "LastStableOffsetLag": "Offsets from the last stable offset to the high watermark.",
        },
        *PARTITION,
    ),
    **_plain(
        "kafka_log_log_",
        _LOG,
        {
            "LogStartOffset": "First offset.",
            "LogEndOffset": "End of the log.",
            "NumLogSegments": "Segments.",
            "Size": "Bytes of a replica.",
        },
        *PARTITION,
    ),
    **_plain(
        "kafka_coordinator_group_groupmetadatamanager_",
        _GROUPS,
        {
            "NumGroups": "Groups that it coordinates.",
            "NumOffsets": "Committed offsets that it keeps.",
        },
    ),
    **{
        f"kafka_server_brokertopicmetrics_{name.lower()}": Family(
            about, ("topic",), f"{_TRAFFIC}{name}PerSec", COUNTER
        )
        for name, about in {
            "MessagesIn": "Records that producers have written.",
            "BytesIn": "Bytes of their batches.",
            "BytesOut": "Bytes of batches in answers to consumers.",
            "TotalProduceRequests": "Partitions here that Produce requests named.",
            "FailedProduceRequests": "Those that were refused, but for a change of the leader.",
            "TotalFetchRequests": "Looks at a partition for a consumer.",
        }.items()
    },
    "kafka_network_requestmetrics_requests": Family(
        "Requests that were answered.", ("request",), f"{_REQUESTS}RequestsPerSec", COUNTER
    ),
    "kafka_network_requestmetrics_totaltimems": Family(
        "Milliseconds from the start of a request to its answer.",
        ("request", "quantile"),
        f"{_REQUESTS}TotalTimeMs",
        SUMMARY,
    ),
}

OWN: dict[str, Family] = {
    "oncelog_partition_last_stable_offset": Family("As far as committed readers get.", PARTITION),
    "oncelog_partition_high_watermark": Family("As far as other readers get.", PARTITION),
    "oncelog_group_committed_offset": Family("What a group has committed.", GROUP_PARTITION),
    "oncelog_group_lag_to_last_stable": Family(
        "Offsets from what is committed to the last stable offset.", GROUP_PARTITION
    ),
    "oncelog_transactional_ids": Family("Transactional ids that it coordinates."),
    "oncelog_transactions": Family("Transactions by their state.", ("state",)),
    "oncelog_transaction_oldest_open_seconds": Family("Age of the oldest open one."),
    "oncelog_transactions_hanging": Family("Open ones that no coordinator will end."),
    "oncelog_events": Family("Events that it has told.", ("kind", "reason"), "", COUNTER),
    "oncelog_raft_term": Family("Term of a Raft group; 0 is the metadata.", RAFT_GROUP),
    "oncelog_raft_leader": Family("Whether it leads a Raft group.", RAFT_GROUP),
    "oncelog_raft_uncommitted_entries": Family("Entries without a majority.", RAFT_GROUP),
    "oncelog_raft_unapplied_entries": Family("Committed entries not applied yet.", RAFT_GROUP),
    "oncelog_loop_stalls": Family("Turns of the event loop above 100 ms.", (), "", COUNTER),
    "oncelog_loop_starved": Family("Turns that waited for a processor.", (), "", COUNTER),
    "oncelog_loop_longest_turn_seconds": Family("The longest turn above 100 ms."),
    "oncelog_client_connections": Family("Connections of clients."),
    "oncelog_peer_sent_bytes": Family("Bytes to another broker.", PEER, "", COUNTER),
    "oncelog_peer_received_bytes": Family("Bytes from another broker.", PEER, "", COUNTER),
    "oncelog_process_cpu_seconds": Family("CPU time of the process.", (), "", COUNTER),
    "oncelog_process_resident_memory_bytes": Family("Resident memory of the process."),
    "oncelog_series_left_out": Family("Series left out because a family has too many."),
}

FAMILIES = KAFKA | OWN
# Families of `oncelog metrics` for any cluster, in addition to both tables above.
OF_CLUSTER: dict[str, Family] = {
    "oncelog_partition_held_back_offsets": Family(
        "Offsets from the last stable offset to the high watermark.", PARTITION
    ),
    "oncelog_group_lag": Family("Offsets from what is committed to the end.", GROUP_PARTITION),
    "oncelog_group_members": Family("Members.", ("group",)),
    "oncelog_broker_answer_seconds": Family("How long its newest answer took.", ("broker",)),
    "oncelog_data_age_seconds": Family("How old a part of this page is.", ("part",)),
}
