"""Administration of transactions (KIP-664), with lists, descriptions, and two ways to end one.

Requests about a transactional id go to its coordinator. Lists are gathered from all brokers, since
each broker coordinates some ids. Requests about a partition's producers go to its leader. Errors
are raised as in `admin`. There are two ways to end a transaction from outside:

    end        by its transactional id: a new session of the id makes the coordinator abort the
               open transaction and fence its owner
    abort      by its marker, in one partition, without the coordinator, for a transaction
               that the coordinator does not know, and that blocks its partition for ever
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..wire.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    TransactionalIdNotFound,
)
from ..wire.identifiers import Identity, TopicPartition
from .by_topic import entries_by_topic
from .cluster_view import ClusterView, PartialList
from .connection import BrokerConnection
from .coordinator_lookup import TRANSACTION, find_coordinator, raise_error_of
from .failures import UNREACHABLE
from .security.permissions import error_about

INIT_PRODUCER_ID, WRITE_TXN_MARKERS = 22, 27
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
NO_TRANSACTION = -1
IDS_PER_REQUEST = 1_000
TAKEOVER_TIMEOUT_MS = 1_000  # for a session without transactions; every broker allows it


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in its coordinator's answer to ListTransactions."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    """A transactional id as its coordinator describes it.

    start_ms: wall clock, -1 without a transaction. partitions: those of the transaction. While
    markers are written, only those that still lack a marker.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProducer:
    """The state of a producer in a partition. `first_offset` is -1 without an open transaction.

    coordinator_epoch: the epoch of the last marker, -1 before the first marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    first_offset: int

    @property
    def is_open(self) -> bool:
        """Return whether the producer has an open transaction in this partition."""
        return self.first_offset != NO_TRANSACTION


class TransactionAdmin:
    """An administration client for transactions, with a view of the cluster."""

    def __init__(self, view: ClusterView, *, timeout_ms: int = 15_000) -> None:
        self.view, self.timeout_ms = view, timeout_ms

    async def list_transactions(
        self,
        *,
        prefix: str = "",
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        needs_all_brokers: bool = True,
    ) -> PartialList[TransactionListing]:
        """List all transactional ids that pass the filters, by name.

        A broker that is unreachable, or knows no coordinator of some ids, is asked until the
        deadline. Unless all brokers are needed, it is left out immediately, and the list's `errors`
        has its error.
        """
        values: dict[str, Any] = {
            "state_filters": list(states),
            "producer_id_filters": list(producer_ids),
        }
        skipped = () if needs_all_brokers else (*UNREACHABLE, CoordinatorNotAvailable)

        async def attempt() -> PartialList[TransactionListing]:
            found: dict[str, TransactionListing] = {}
            answers = await self.view.ask_all(LIST_TRANSACTIONS, values, skipped)
            for node_id, answer in answers:
                try:
                    raise_error_of(answer)
                except skipped as problem:
                    answers.errors[node_id] = problem
                    continue
                for each in answer.transaction_states:
                    name = each.transactional_id
                    if not name.startswith(prefix):
                        continue
                    listing = TransactionListing(
                        name, node_id, each.producer_id, each.transaction_state
                    )
                    if found.setdefault(name, listing).coordinator != node_id:
                        # the old coordinator does not know yet that it was replaced
                        raise NotCoordinator(f"two brokers list the transactional id {name}")
            return PartialList((found[name] for name in sorted(found)), answers.errors)

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transactional id, or raise TransactionalIdNotFound."""

        async def attempt() -> DescribedTransaction:
            node_id = await find_coordinator(self.view, transactional_id, TRANSACTION)
            found = await self._describe(node_id, [transactional_id])
            result = found[transactional_id]
            if isinstance(result, KafkaError):
                raise result
            return result

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def describe_listed(
        self, listed: Iterable[TransactionListing]
    ) -> dict[str, DescribedTransaction]:
        """Describe listed transactional ids, without those that were removed or are refused."""
        by_node: dict[int, list[str]] = {}
        for each in listed:
            by_node.setdefault(each.coordinator, []).append(each.transactional_id)
        states: dict[str, DescribedTransaction] = {}
        for node_id, ids in by_node.items():
            for start in range(0, len(ids), IDS_PER_REQUEST):
                found = await self._describe(node_id, ids[start : start + IDS_PER_REQUEST])
                for name, state in found.items():
                    if isinstance(state, DescribedTransaction):
                        states[name] = state
                    elif state.retriable:  # its coordinator has moved since
                        with contextlib.suppress(TransactionalIdNotFound):
                            states[name] = await self.describe(name)
        return states

    async def producers(
        self, wanted: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[PartitionProducer]]:
        """Return the producers of each partition, as its leader knows them.

        Each leader is asked once for all its partitions, and again after a partition has moved.
        """
        keys = list(dict.fromkeys(wanted))
        found: dict[TopicPartition, list[PartitionProducer]] = {}

        async def attempt() -> None:
            by_leader: dict[BrokerConnection, list[TopicPartition]] = {}
            for key in keys:
                if key not in found:
                    by_leader.setdefault(await self.view.leader_of(*key), []).append(key)
            problem: KafkaError | None = None
            for leader, led in by_leader.items():
                answer = await leader.call(
                    DESCRIBE_PRODUCERS, {"topics": entries_by_topic(led, "partition_indexes")}
                )
                for topic in answer.topics:
                    for result in topic.partitions:
                        key = (str(topic.name), result.partition_index)
                        try:
                            raise_error_of(result, key[0], "Read")
                        except KafkaError as met:
                            if not met.retriable:
                                raise
                            problem = met
                            continue
                        known = map(_producer, result.active_producers)
                        found[key] = sorted(known, key=lambda p: p.producer_id)
            if problem is not None:
                raise problem

        topics = {topic for topic, _ in keys}
        await self.view.retrying(attempt, timeout_ms=self.timeout_ms, topics=topics)
        return found

    async def end(self, transactional_id: str) -> Identity:
        """Abort the open transaction of an id, and fence its producer.

        Return the new (id, epoch).
        """
        values = {
            "transactional_id": transactional_id,
            "transaction_timeout": TAKEOVER_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        async def attempt() -> Identity:
            node_id = await find_coordinator(self.view, transactional_id, TRANSACTION)
            answer = await (await self.view.broker(node_id)).call(INIT_PRODUCER_ID, values)
            raise_error_of(answer, transactional_id, "Write")
            return answer.producer_id, answer.producer_epoch

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def abort(self, topic: str, partition: int, producer: PartitionProducer) -> None:
        """Write the abort marker of this producer's open transaction in this partition."""
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": max(producer.coordinator_epoch, 0),
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }

        async def attempt() -> None:
            leader = await self.view.leader_of(topic, partition)
            answer = await leader.call(WRITE_TXN_MARKERS, {"markers": [marker]})
            (result,) = answer.markers[0].topics[0].partitions
            raise_error_of(result, operation="Alter")

        await self.view.retrying(attempt, timeout_ms=self.timeout_ms, topics=[topic])

    async def _describe(
        self, node_id: int, ids: list[str]
    ) -> dict[str, "DescribedTransaction | KafkaError"]:
        connection = await self.view.broker(node_id)
        answer = await connection.call(DESCRIBE_TRANSACTIONS, {"transactional_ids": ids})
        return {each.transactional_id: _state(each, node_id) for each in answer.transaction_states}


def _state(each: Any, node_id: int) -> DescribedTransaction | KafkaError:
    if each.error_code:
        return error_about(int(each.error_code), each.transactional_id, "Describe")
    return DescribedTransaction(
        transactional_id=each.transactional_id,
        coordinator=node_id,
        state=each.transaction_state,
        producer_id=int(each.producer_id),
        producer_epoch=each.producer_epoch,
        timeout_ms=each.transaction_timeout,
        start_ms=each.transaction_start_time,
        partitions=tuple(sorted((t.topic, index) for t in each.topics for index in t.partitions)),
    )


def _producer(each: Any) -> PartitionProducer:
    return PartitionProducer(
        producer_id=int(each.producer_id),
        producer_epoch=each.producer_epoch,
        last_sequence=each.last_sequence,
        last_timestamp_ms=each.last_timestamp,
        coordinator_epoch=each.coordinator_epoch,
        first_offset=each.current_txn_start_offset,
    )
