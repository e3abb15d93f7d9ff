"""The rights that Kafka 4.4 requires for each API, with requests that need all of them.

A right is OPERATION TYPE. `|` separates alternatives. Without a right marked by `?` the answer
omits items, but has no error. The sources are KafkaApis, ControllerApis and AclApis.
"""

from typing import Any, NamedTuple

from oncelog.proof.conformance.harmless import HARMLESS
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

TOPIC, MISSING, GROUP, ID = "t", "m", "g", "x"
_TRANSACTIONAL = encode_batch(
    [Record(0, 0, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
)
_ALTER, _DESCRIBE = ("Alter Cluster",), ("Describe Cluster",)


class Asked(NamedTuple):
    """A request and its rights.

    `version` None is the newest, and `values` replace HARMLESS fields.
    """

    rights: tuple[str, ...]
    values: Any = None
    version: int | None = None


def _topic(**fields: Any) -> dict[str, Any]:
    return {"topics": [{"name": TOPIC, **fields}]}


_ONE = [{"partition_index": 0}]
_MEMBER = {"group_id": GROUP, "member_id": "n"}
_READS = ("Read Group",)
_CONFIGS = [
    {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": []}
    for kind, name in ((2, TOPIC), (4, "1"), (32, GROUP))
]
_CONFIG_RIGHTS = tuple(f"{{}}Configs {kind}" for kind in ("Topic", "Cluster", "Group"))
_DESCRIBES_CONFIGS = tuple(each.format("Describe") for each in _CONFIG_RIGHTS)
_ALTERS_CONFIGS = tuple(each.format("Alter") for each in _CONFIG_RIGHTS)
BY_API: dict[str, tuple[Asked, ...]] = {
    "Produce": (
        Asked(
            ("Write Topic", "Write TransactionalId"),
            ProduceRequest(
                ID, -1, 1_000, [ProduceTopic(TOPIC, None, [ProducePartition(0, _TRANSACTIONAL)])]
            ),
            12,
        ),
    ),
    "Fetch": (
        Asked(
            ("Read Topic",),
            FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                topics=[FetchTopic(TOPIC, None, [FetchPartition(0, 0, 1_000)])],
            ),
            12,
        ),
    ),
    "ListOffsets": (
        Asked(("Describe Topic",), _topic(partitions=[{"partition_index": 0, "timestamp": -1}])),
    ),
    "Metadata": (
        Asked(
            ("Describe Topic", "Create Cluster|Create Topic"),
            {"topics": [{"name": MISSING}], "allow_auto_topic_creation": True},
        ),
    ),
    "OffsetCommit": (
        Asked(("Read Group", "Read Topic"), {**_MEMBER, **_topic(partitions=_ONE)}, 9),
    ),
    "OffsetFetch": (
        Asked(
            ("Describe Group", "Describe Topic"),
            {
                "groups": [
                    {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
                ]
            },
            9,
        ),
        Asked(
            ("Describe Group", "Describe Topic"),
            {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]},
            7,
        ),
    ),
    "FindCoordinator": (
        Asked(("Describe Group",), {"key_type": 0, "coordinator_keys": [GROUP]}),
        Asked(("Describe TransactionalId",), {"key_type": 1, "coordinator_keys": [ID]}),
        Asked(("Describe Group",), {"key_type": 0, "key": GROUP}, 3),
    ),
    "JoinGroup": (Asked(_READS, {"group_id": GROUP, "member_id": ""}),),
    "Heartbeat": (Asked(_READS, _MEMBER),),
    "LeaveGroup": (Asked(_READS, {"group_id": GROUP}),),
    "SyncGroup": (
        Asked(_READS, {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range"}),
    ),
    "DescribeGroups": (Asked(("Describe Group",), {"groups": [GROUP]}),),
    "ListGroups": (Asked(("Describe Cluster|Describe Group?",)),),
    "ApiVersions": (Asked(()),),
    "SaslHandshake": (Asked((), {"mechanism": "PLAIN"}),),
    "SaslAuthenticate": (Asked((), {"auth_bytes": b""}),),
    "DescribeUserScramCredentials": (Asked(_DESCRIBE),),
    "AlterUserScramCredentials": (
        Asked(_ALTER, {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    ),
    "CreateTopics": (
        Asked(
            ("Create Cluster|Create Topic", "DescribeConfigs Topic"),
            {"topics": [{"name": MISSING, "num_partitions": 1, "replication_factor": 1,
                         "assignments": [], "configs": []}], "validate_only": True},
        ),
    ),
    "DeleteTopics": (
        Asked(("Delete Topic",), {"topics": [{"name": "nothing", "topic_id": bytes(16)}]}),
        Asked(("Delete Topic",), {"topic_names": ["nothing"]}, 5),
    ),
    "DeleteRecords": (
        Asked(("Delete Topic",), _topic(partitions=[{"partition_index": 0, "offset": 0}])),
    ),
    "InitProducerId": (
        Asked(("Write TransactionalId", "TwoPhaseCommit TransactionalId"),
              {"transactional_id": ID, "enable2_pc": True}),
        Asked(("IdempotentWrite Cluster|Write Topic",), {"transactional_id": None}),
    ),
    "OffsetForLeaderEpoch": (
        Asked(
            ("ClusterAction Cluster|Describe Topic",),
            {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        ),
    ),
    "AddPartitionsToTxn": (
        Asked(
            ("Write TransactionalId", "Write Topic"),
            {
                "v3_and_below_transactional_id": ID,
                "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
            },
            3,
        ),
        Asked(("ClusterAction Cluster",)),
    ),
    "AddOffsetsToTxn": (
        Asked(("Write TransactionalId", "Read Group"), {"transactional_id": ID, "group_id": GROUP}),
    ),
    "EndTxn": (Asked(("Write TransactionalId",), {"transactional_id": ID}),),
    "WriteTxnMarkers": (Asked(("Alter Cluster|ClusterAction Cluster",), {"markers": [
        {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
         "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]}),),
    "TxnOffsetCommit": (
        Asked(
            ("Write TransactionalId", "Read Group", "Read Topic"),
            {**_MEMBER, "transactional_id": ID, **_topic(partitions=_ONE)},
            5,
        ),
    ),
    "DescribeAcls": (Asked(_DESCRIBE),),
    "CreateAcls": (Asked(_ALTER, {"creations": [
        {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3,
         "principal": "User:u", "host": "*", "operation": 3, "permission_type": 3}]}),),
    "DeleteAcls": (Asked(_ALTER, {"filters": [
        {"resource_type_filter": 1, "pattern_type_filter": 1, "principal_filter": "User:nobody",
         "operation": 1, "permission_type": 1}]}),),
    "DescribeConfigs": (Asked(_DESCRIBES_CONFIGS, {"resources": _CONFIGS}),),
    "AlterConfigs": (Asked(_ALTERS_CONFIGS, {"resources": _CONFIGS}),),
    "IncrementalAlterConfigs": (Asked(_ALTERS_CONFIGS, {"resources": _CONFIGS}),),
    "AlterReplicaLogDirs": (Asked(_ALTER, {"dirs": [
        {"path": "/", "topics": [{"name": TOPIC, "partitions": [0]}]}]}),),
    "DescribeLogDirs": (Asked(_DESCRIBE),),
    "CreatePartitions": (
        Asked(("Alter Topic",), {"topics": [{"name": TOPIC, "count": 1, "assignments": None}]}),
    ),
    "CreateDelegationToken": (Asked(()),),
    "RenewDelegationToken": (Asked(()),),
    "ExpireDelegationToken": (Asked(()),),
    "DescribeDelegationToken": (Asked(()),),
    "DeleteGroups": (Asked(("Delete Group",), {"groups_names": ["gone"]}, 2),),
    "ElectLeaders": (Asked(_ALTER),),
    "AlterPartitionReassignments": (Asked(_ALTER),),
    "ListPartitionReassignments": (Asked(_DESCRIBE),),
    "OffsetDelete": (
        Asked(("Delete Group", "Read Topic"), {"group_id": GROUP, **_topic(partitions=_ONE)}),
    ),
    "DescribeClientQuotas": (Asked(("DescribeConfigs Cluster",)),),
    "AlterClientQuotas": (Asked(("AlterConfigs Cluster",), {"entries": [
        {"entity": [{"entity_type": "ip", "entity_name": "::1"}], "ops": []}]}),),
    "DescribeQuorum": (Asked(_DESCRIBE),),
    "UpdateFeatures": (Asked(_ALTER),),
    "DescribeCluster": (Asked(()),),
    "DescribeProducers": (Asked(("Read Topic",), _topic(partition_indexes=[0])),),
    "UnregisterBroker": (Asked(_ALTER),),
    "DescribeTransactions": (
        Asked(("Describe TransactionalId", "Describe Topic?"), {"transactional_ids": [ID]}),
    ),
    "ListTransactions": (Asked(("Describe TransactionalId?",)),),
    "ConsumerGroupHeartbeat": (
        Asked(
            ("Read Group", "Describe Topic"),
            {**_MEMBER, "member_epoch": 5, "subscribed_topic_names": [TOPIC]},
        ),
    ),
    "ConsumerGroupDescribe": (
        Asked(("Describe Group", "Describe Topic?"), {"group_ids": [GROUP]}),
    ),
    "ListConfigResources": (Asked(("DescribeConfigs Cluster",)),),
    "DescribeTopicPartitions": (Asked(("Describe Topic",), {"topics": [{"name": TOPIC}]}),),
    "AddRaftVoter": (Asked(_ALTER),),
    "RemoveRaftVoter": (Asked(_ALTER),),
    "UnregisterController": (Asked(_ALTER),),
}  # fmt: skip


def body_values(key: int, asked: Asked) -> Any:
    """Return all fields of a request's body."""
    if asked.values is None or isinstance(asked.values, dict):
        return {**HARMLESS[key], **(asked.values or {})}
    return asked.values
