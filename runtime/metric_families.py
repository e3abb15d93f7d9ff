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
    """A metric family. Samples of a counter have the suffix `_total`, which the family name lacks.

    The last label of a summary has a quantile as its value, or COUNT or SUM.
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
    """Return a family for each row, with the name of an MBean in lower case after `prefix`.

    `rows` are descriptions by the last part of the MBean's name. `bean` is its first part.
    """
    return {
        prefix + name.lower().replace("-", "_"): Family(about, labels, bean + name)
        for name, about in rows.items()
    }


KAFKA: dict[str, Family] = {
    **_plain(
        "kafka_server_kafkaserver_",
        "kafka.server:type=KafkaServer,name=",
        {"BrokerState": "The state of the broker. 3 means that it serves."},
    ),
    **_plain(
        "kafka_server_replicamanager_",
        _REPLICAS,
        {
            "LeaderCount": "The partitions that this broker leads.",
            "PartitionCount": "The replicas on this broker.",
            "UnderReplicatedPartitions": "The led partitions with replicas that are not in sync.",
            "UnderMinIsrPartitionCount": "Led partitions with an ISR below min.insync.replicas.",
            "OfflineReplicaCount": "The replicas with a failed log.",
        },
    ),
    "kafka_server_raft_metrics_current_state_info": Family(
        "The role of this broker in the Raft group of the metadata.",
        ("state",),
        _RAFT + "current-state",
    ),
    **_plain(
        "kafka_server_raft_metrics_",
        _RAFT,
        {
            "current-leader": "The leader of the metadata's Raft group, or -1 without one.",
            "current-epoch": "The term of the metadata's Raft group.",
            "high-watermark": "The last committed entry of the metadata's Raft log.",
            "log-end-offset": "The end of the metadata's Raft log.",
        },
    ),
    **_plain(
        "kafka_controller_kafkacontroller_",
        _CONTROLLER,
        {
            "ActiveControllerCount": "1 if this broker is the active controller.",
            "ActiveBrokerCount": "The brokers that serve.",
            "FencedBrokerCount": "The brokers that are fenced or stopped.",
            "GlobalTopicCount": "The topics of the cluster.",
            "GlobalPartitionCount": "The partitions of the cluster.",
            "OfflinePartitionsCount": "The partitions without a leader.",
        },
    ),
    **_plain(
        "kafka_cluster_partition_",
        _PARTITION,
        {
            "UnderReplicated": "1 if a replica is not in sync.",
            "InSyncReplicasCount": "The replicas in sync.",
            "ReplicasCount": "The replicas of the partition.",
            "LastStableOffsetLag": "The offsets from the last stable offset to the high watermark.",
        },
        *PARTITION,
    ),
    **_plain(
        "kafka_log_log_",
        _LOG,
        {
            "LogStartOffset": "The first offset of the log.",
            "LogEndOffset": "The end offset of the log.",
            "NumLogSegments": "The segments of the log.",
            "Size": "The size of the replica in bytes.",
        },
        *PARTITION,
    ),
    **_plain(
        "kafka_coordinator_group_groupmetadatamanager_",
        _GROUPS,
        {
            "NumGroups": "The groups that this broker coordinates.",
            "NumOffsets": "The committed offsets of these groups.",
        },
    ),
    **{
        f"kafka_server_brokertopicmetrics_{name.lower()}": Family(
            about, ("topic",), f"{_TRAFFIC}{name}PerSec", COUNTER
        )
        for name, about in {
            "MessagesIn": "The records that producers have written.",
            "BytesIn": "The bytes of batches that producers have written.",
            "BytesOut": "The bytes of batches in answers to consumers.",
            "TotalProduceRequests": "The partitions in Produce requests.",
            "FailedProduceRequests": "The partitions that were refused, except after elections.",
            "TotalFetchRequests": "The reads of a partition for a consumer.",
        }.items()
    },
    "kafka_network_requestmetrics_requests": Family(
        "The requests that were answered.", ("request",), f"{_REQUESTS}RequestsPerSec", COUNTER
    ),
    "kafka_network_requestmetrics_totaltimems": Family(
        "The milliseconds from the start of a request to its answer.",
        ("request", "quantile"),
        f"{_REQUESTS}TotalTimeMs",
        SUMMARY,
    ),
}

OWN: dict[str, Family] = {
    "oncelog_partition_last_stable_offset": Family(
        "The offset up to which read_committed consumers read.", PARTITION
    ),
    "oncelog_partition_high_watermark": Family(
        "The offset up to which read_uncommitted consumers read.", PARTITION
    ),
    "oncelog_group_committed_offset": Family(
        "The offset that a group has committed.", GROUP_PARTITION
    ),
    "oncelog_group_lag_to_last_stable": Family(
        "The offsets from the committed offset to the last stable offset.", GROUP_PARTITION
    ),
    "oncelog_transactional_ids": Family("The transactional ids that this broker coordinates."),
    "oncelog_transactions": Family("The transactions in a state.", ("state",)),
    "oncelog_transaction_oldest_open_seconds": Family("The age of the oldest open transaction."),
    "oncelog_transactions_hanging": Family(
        "The transactions open longer than the maximum timeout and two scans."
    ),
    "oncelog_events": Family(
        "The events that this broker has logged.", ("kind", "reason"), "", COUNTER
    ),
    "oncelog_raft_term": Family("The term of a Raft group. Group 0 is the metadata.", RAFT_GROUP),
    "oncelog_raft_leader": Family("1 if this broker leads the Raft group.", RAFT_GROUP),
    "oncelog_raft_uncommitted_entries": Family(
        "The entries that a majority does not have yet.", RAFT_GROUP
    ),
    "oncelog_raft_unapplied_entries": Family(
        "The committed entries that are not applied yet.", RAFT_GROUP
    ),
    "oncelog_loop_stalls": Family("The turns of the event loop above 100 ms.", (), "", COUNTER),
    "oncelog_loop_starved": Family(
        "The turns of the event loop that waited for a processor.", (), "", COUNTER
    ),
    "oncelog_loop_longest_turn_seconds": Family("The longest turn of the event loop above 100 ms."),
    "oncelog_client_connections": Family("The connections of clients."),
    "oncelog_peer_sent_bytes": Family("The bytes sent to another broker.", PEER, "", COUNTER),
    "oncelog_peer_received_bytes": Family(
        "The bytes received from another broker.", PEER, "", COUNTER
    ),
    "oncelog_process_cpu_seconds": Family("The CPU time of the process.", (), "", COUNTER),
    "oncelog_process_resident_memory_bytes": Family("The resident memory of the process."),
    "oncelog_series_left_out": Family(
        "The series that were left out because a family has too many."
    ),
}

FAMILIES = KAFKA | OWN
# Families of `oncelog metrics` for any cluster, in addition to both tables above or in their place.
OF_CLUSTER: dict[str, Family] = {
    "oncelog_partition_held_back_offsets": Family(
        "The offsets from the last stable offset to the high watermark.", PARTITION
    ),
    "oncelog_group_lag": Family(
        "The offsets from the committed offset to the high watermark.", GROUP_PARTITION
    ),
    "oncelog_transactions_hanging": Family(
        "The open transactions that their coordinator does not know."
    ),
    "oncelog_group_members": Family("The members of the group.", ("group",)),
    "oncelog_broker_answer_seconds": Family(
        "The time of the newest answer of a broker.", ("broker",)
    ),
    "oncelog_data_age_seconds": Family("The age of a part of this page.", ("part",)),
}
