"""The facts that the page's observer would have of a small cluster, made without a broker."""

from typing import Any

from oncelog.client.admin import BrokerState, ClusterDescription
from oncelog.client.cluster_view import PartitionInfo
from oncelog.client.groups.descriptions import GroupDescription, MemberDescription
from oncelog.client.transaction_admin import DescribedTransaction, PartitionProducer
from oncelog.deploy.inspect.explain import PartitionTransaction
from oncelog.ui.facts import ClusterFacts, ObservedGroup, ObservedOffsets

KEY = ("orders", 0)
NOW_MS = 1_000_000
PARTS = ("cluster", "offsets", "log starts", "transactions", "groups", "replicas", "nodes")


def partition(topic: str = "orders", index: int = 0, **fields: Any) -> PartitionInfo:
    values: dict[str, Any] = {
        "topic": topic,
        "partition": index,
        "leader": 1,
        "leader_epoch": 3,
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
    }
    return PartitionInfo(**{**values, **fields})


def transaction(name: str = "app-1", **fields: Any) -> DescribedTransaction:
    values: dict[str, Any] = {
        "transactional_id": name,
        "coordinator": 1,
        "state": "Ongoing",
        "producer_id": 7,
        "producer_epoch": 2,
        "timeout_ms": 60_000,
        "start_ms": NOW_MS - 20_000,
        "partitions": (KEY,),
    }
    return DescribedTransaction(**{**values, **fields})


def producer(first_offset: int = 10, producer_id: int = 7, epoch: int = 2) -> PartitionProducer:
    return PartitionProducer(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=5,
        last_timestamp_ms=NOW_MS - 19_000,
        coordinator_epoch=0,
        first_offset=first_offset,
    )


def member(member_id: str, *keys: tuple[str, int]) -> MemberDescription:
    return MemberDescription(member_id, None, "client", "/127.0.0.1", keys)


def group(name: str = "readers", offset: int = 4, **fields: Any) -> ObservedGroup:
    described = GroupDescription(name, "Stable", "consumer", "range", 1, (member("m-1", KEY),))
    values: dict[str, Any] = {
        "name": name,
        "coordinator": 1,
        "state": "Stable",
        "type": "classic",
        "described": described,
        "committed": {KEY: offset},
    }
    return ObservedGroup(**{**values, **fields})


def facts(**fields: Any) -> ClusterFacts:
    """Return the facts of a cluster of three nodes, with `fields` in place of the usual ones.

    Transactional id app-1 has an open transaction in orders/0 from offset 10 on.
    """
    opened = transaction()
    values: dict[str, Any] = {
        "as_of_ms": dict.fromkeys(PARTS, NOW_MS),
        "cluster": ClusterDescription(
            "id", 1, tuple(BrokerState(n, "127.0.0.1", 9090 + n, False) for n in (1, 2, 3))
        ),
        "controller": 1,
        "partitions": {KEY: partition()},
        "offsets": {KEY: ObservedOffsets(10, 30)},
        "log_starts": {KEY: 0},
        "transactions": {"app-1": opened},
        "holders": {KEY: (PartitionTransaction(producer(), opened),)},
        "groups": {"readers": group(offset=10)},
    }
    return ClusterFacts(**{**values, **fields})
