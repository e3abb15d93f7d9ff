"""The facts for explain.py, which are read from any cluster by Kafka's protocol alone.

The order of requests matters. The partition's producers are read first, and then their
coordinators, because a coordinator knows a transaction before it is open in a partition. If the
coordinator does not know the transaction, the transaction has ended in between, or it hangs. The
partition's producers are read again to distinguish the two.
"""

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...client.cluster_view import PartitionInfo
from ...client.fetch.offset_queries import EARLIEST, LATEST
from ...client.transaction_admin import DescribedTransaction
from ...wire.errors import (
    GroupIdNotFound,
    KafkaError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ...wire.identifiers import TopicPartition
from ..cluster.failure import Failure
from .explain import Explanation, GroupFacts, PartitionFacts, PartitionTransaction, explain

if TYPE_CHECKING:
    from ...client.admin import Admin

OFFSETS_TOPIC = "__consumer_offsets"
UNSTABLE_TIMEOUT_MS = 300
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def of_partition(
    admin: "Admin", topic: str, index: int, group: str | None = None
) -> PartitionFacts:
    """Return the facts that explain why readers of a partition wait.

    group: also return the facts about this group. Raises an error or Failure if the partition does
    not exist or a request is not answered.
    """
    start = stable = high = None
    held: tuple[PartitionTransaction, ...] = ()
    key = (topic, index)
    try:
        partition = await _partition(admin, topic, index)
        configs = await admin.describe_configs(topic)
        if partition.leader >= 0:
            stable = (await admin.list_offsets({key: LATEST}, read_committed=True))[key]
            high = (await admin.list_offsets({key: LATEST}))[key]
            start = (await admin.list_offsets({key: EARLIEST}))[key]
            held = (await without_ended(admin, await holders(admin, [key])))[key]
        facts = None if group is None else await _of_group(admin, group, key)
    except KafkaError as problem:
        if not problem.retriable or isinstance(problem, UnknownTopicOrPartition):
            raise
        raise Failure(
            f"What holds {topic}/{index} cannot be told while {str(problem).rstrip('.')}. "
            "Are enough nodes up? See: oncelog ps"
        ) from problem
    min_insync = next((int(c.value or 1) for c in configs if c.name == "min.insync.replicas"), 1)
    return PartitionFacts(
        partition=partition,
        min_insync=min_insync,
        log_start=start,
        last_stable=stable,
        high_watermark=high,
        holders=held,
        group=facts,
        now_ms=time.time_ns() // 1_000_000,
    )


async def holders(
    admin: "Admin", partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[PartitionTransaction, ...]]:
    """Return each partition's open transactions, oldest first.

    Each has the state of the transaction at its coordinator. If a transaction is unknown, the
    brokers are asked once more, and each has to answer. One that is silent may be the coordinator,
    and the coordinator may have changed while the brokers were asked one after the other.
    """
    found = await admin.transactions.producers(partitions)
    opened = {key: [p for p in producers if p.is_open] for key, producers in found.items()}
    ids = {p.producer_id for producers in opened.values() for p in producers}
    if not ids:
        return dict.fromkeys(opened, ())
    for needs_all_brokers in (False, True):
        listed = await admin.transactions.list_transactions(
            producer_ids=ids, needs_all_brokers=needs_all_brokers
        )
        described = await admin.transactions.describe_listed(listed)
        known = {state.producer_id: state for state in described.values()}
        held = {
            key: tuple(
                PartitionTransaction(p, known.get(p.producer_id))
                for p in sorted(producers, key=lambda p: p.first_offset)
            )
            for key, producers in opened.items()
        }
        if all(h.is_known(key) for key, each in held.items() for h in each):
            break
    return held


async def hanging(
    admin: "Admin", topics: Iterable[str] | None
) -> list[tuple[TopicPartition, PartitionTransaction]]:
    """Return open transactions in these topics, by default all, that no coordinator knows."""
    described = await admin.describe_topics(topics)
    keys = [(p.topic, p.partition) for p in described if p.leader >= 0]
    found = await without_ended(admin, await holders(admin, keys))
    return [(key, h) for key, held in found.items() for h in held if not h.is_known(key)]


async def without_ended(
    admin: "Admin", found: Mapping[TopicPartition, tuple[PartitionTransaction, ...]]
) -> dict[TopicPartition, tuple[PartitionTransaction, ...]]:
    """Return the transactions without those that ended before their coordinator was asked.

    A hanging transaction stays, because it is still open in its partition.
    """
    suspects = {key for key, held in found.items() if any(not h.is_known(key) for h in held)}
    still = await admin.transactions.producers(suspects) if suspects else {}
    opened = {(key, p.producer_id, p.first_offset) for key, ps in still.items() for p in ps}
    return {
        key: tuple(
            h
            for h in held
            if h.is_known(key) or (key, h.producer.producer_id, h.producer.first_offset) in opened
        )
        for key, held in found.items()
    }


async def explanation(admin: "Admin", transactional_id: str) -> Explanation:
    """Explain the state of a transactional id. Raises Failure when no coordinator knows the id."""
    try:
        transaction = await admin.transactions.describe(transactional_id)
    except TransactionalIdNotFound:
        raise Failure(f"No coordinator knows a transactional id {transactional_id}.") from None
    described = await admin.describe_topics(sorted({topic for topic, _ in transaction.partitions}))
    led = {(p.topic, p.partition) for p in described if p.leader >= 0}
    return explain(
        transaction,
        now_ms=time.time_ns() // 1_000_000,
        last_write_ms=await _last_write_ms(admin, transaction, led),
        leaderless=[key for key in transaction.partitions if key not in led],
    )


async def _partition(admin: "Admin", topic: str, index: int) -> PartitionInfo:
    for partition in await admin.describe_topics([topic]):
        if partition.partition == index:
            return partition
    raise Failure(f"There is no partition {topic}/{index}.")


async def _last_write_ms(
    admin: "Admin", transaction: DescribedTransaction, led: set[TopicPartition]
) -> int | None:
    keys = [key for key in transaction.partitions if key in led]
    found = await admin.transactions.producers(keys)
    times = [
        p.last_timestamp_ms
        for producers in found.values()
        for p in producers
        if p.producer_id == transaction.producer_id and p.last_timestamp_ms >= 0
    ]
    return max(times, default=None)


async def _of_group(admin: "Admin", name: str, key: TopicPartition) -> GroupFacts:
    try:
        described = await admin.groups.describe(name)
    except GroupIdNotFound:
        return GroupFacts(name=name, described=None, committed=None)
    committed = (await admin.groups.committed(name, [key])).get(key)
    is_unstable = await _is_unstable(admin, name, key)
    held: list[tuple[TopicPartition, PartitionTransaction]] = []
    if is_unstable:
        # only the broker knows the partition of the group; it is one of those that its leader
        # leads
        parts = await admin.describe_topics([OFFSETS_TOPIC])
        keys = [(p.topic, p.partition) for p in parts if p.leader == described.coordinator]
        held = [(k, h) for k, hs in (await holders(admin, keys)).items() for h in hs]
    return GroupFacts(
        name=name,
        described=described,
        committed=None if committed is None or committed.offset < 0 else committed.offset,
        is_unstable=is_unstable,
        holders=tuple(held),
    )


async def _is_unstable(admin: "Admin", group: str, key: TopicPartition) -> bool:
    """Return whether OffsetFetch with require_stable gets UNSTABLE_OFFSET_COMMIT."""
    patient, admin.groups.timeout_ms = admin.groups.timeout_ms, UNSTABLE_TIMEOUT_MS
    try:
        await admin.groups.committed(group, [key], stable=True)
    except KafkaError as problem:
        return isinstance(problem, UnstableOffsetCommit)
    finally:
        admin.groups.timeout_ms = patient
    return False
