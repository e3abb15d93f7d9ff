"""A request of each API that reports errors, for one topic, group and transactional id."""

from typing import Any

from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from .frames import TOPIC_ID

T, G, X = "orders", "readers", "writer"
BY_INDEX = [{"name": T, "topic": T, "topic_id": TOPIC_ID, "partitions": [
    {"partition_index": 0, "partition": 0}, {"partition_index": 2, "partition": 2}]}]  # fmt: skip
BY_NUMBER = [{"name": T, "topic_id": TOPIC_ID, "partitions": [0, 2], "partition_indexes": [0, 2]}]


def produce_request(version: int, transactional_id: str | None = X, acks: int = -1):
    partitions = [ProducePartition(0, b""), ProducePartition(2, b"")]
    name, topic_id = (None, TOPIC_ID) if version >= 13 else (T, None)
    topics = [ProduceTopic(name, topic_id, partitions)]
    return ProduceRequest(transactional_id, acks, 1_000, topics)


def fetch_request(version: int, **others: Any):
    name, topic_id = (None, TOPIC_ID) if version >= 13 else (T, None)
    partitions = [FetchPartition(0, 5, 1_000), FetchPartition(2, 5, 1_000)]
    topics = [FetchTopic(name, topic_id, partitions)]
    return FetchRequest(max_wait_ms=10, min_bytes=1, topics=topics, **others)


def sample(api: str, version: int) -> Any:
    """Return the fields of a request of this API and version."""
    if api == "Produce":
        return produce_request(version)
    if api == "Fetch":
        return fetch_request(version)
    return SAMPLES[api]


SAMPLES: dict[str, dict[str, Any]] = {
    "ListOffsets": {"replica_id": -1, "topics": BY_INDEX},
    "OffsetCommit": {"group_id": G, "topics": BY_INDEX},
    "OffsetFetch": {
        "group_id": G,
        "topics": BY_NUMBER,
        "groups": [{"group_id": G, "topics": BY_NUMBER}],
    },
    "FindCoordinator": {"key": G, "key_type": 0, "coordinator_keys": [G, "others"]},
    "JoinGroup": {
        "group_id": G, "session_timeout": 45_000, "rebalance_timeout": 300_000, "member_id": "m",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"?"}],
    },
    "Heartbeat": {"group_id": G, "generation_id": 1, "member_id": "m"},
    "LeaveGroup": {"group_id": G, "member_id": "m", "members": [{"member_id": "m"}]},
    "SyncGroup": {"group_id": G, "generation_id": 1, "member_id": "m"},
    "CreateTopics": {"topics": [{"name": T, "num_partitions": 3, "replication_factor": 1}]},
    "DeleteTopics": {"topic_names": [T], "topics": [{"name": T}]},
    "CreatePartitions": {"topics": [{"name": T, "count": 3}]},
    "InitProducerId": {"transactional_id": X, "transaction_timeout": 60_000},
    "OffsetForLeaderEpoch": {"topics": BY_INDEX},
    "AddPartitionsToTxn": {
        "v3_and_below_transactional_id": X,
        "v3_and_below_topics": BY_NUMBER,
        "transactions": [{"transactional_id": X, "topics": BY_NUMBER}],
    },
    "AddOffsetsToTxn": {"transactional_id": X, "group_id": G},
    "EndTxn": {"transactional_id": X, "producer_id": 1, "committed": True},
    "TxnOffsetCommit": {"transactional_id": X, "group_id": G, "topics": BY_INDEX},
    "ConsumerGroupHeartbeat": {"group_id": G, "member_id": "m"},
}  # fmt: skip
