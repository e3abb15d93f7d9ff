"""Hanging transactions, which are open in a partition but unknown to their coordinator.

A transaction opens in a partition only after its coordinator has confirmed it, and the coordinator
repeats its markers until they are answered. So a hanging transaction is rare: its marker was lost
in an unclean election, or the coordinator lost its state. It would block read_committed consumers
forever. The leader of the partition asks the coordinator about each transaction that has been open
for ASK_AFTER_MS, and later at growing intervals. The answer decides:

    the coordinator has it, or is ending it          leave it open: it is a long transaction
    it ended the same one (its epoch is the next)    write the same marker
    it has no such transaction                       abort: no client got a commit confirmed

The abort has the epochs that the partition knows, so it fences no producer. Nothing is written if
the producer has begun another transaction in the meantime. The transactional id is known only for
transactions that were opened or continued under this leadership. The others are only counted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from ...coordinator.transactions.answers import TransactionDescription
from ...coordinator.transactions.messages import (
    DescribeTransaction,
    TransactionMarker,
    WriteMarkers,
)
from ...replication.messages import MalformedPeerMessage, PeerMessage
from ...replication.peer.codec import decode_message, encode_message
from ...replication.peer.transport import PeerError, PeerTransport
from ...runtime.background_task import background_task, end_tasks
from ...runtime.steps import Steps
from ...wire.errors import ErrorCode
from ..partitions.hosted_partition import HostedPartition
from ..partitions.replica_manager import ReplicaManager
from .service import TransactionCoordinators

logger = logging.getLogger(__name__)
ASK_AFTER_MS = 10_000
ASK_AGAIN_MS_MAX = 300_000
QUESTIONS_PER_SCAN = 100
TRANSACTIONS_PER_STEP = 128
ASK_TIMEOUT_MS = 2_000


class HangingDecision(Enum):
    """The decision to leave an open transaction open, or to end it by a marker."""

    LEAVE = "leave"
    ABORT = "abort"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class HangingCandidate:
    """A producer's open transaction in a partition, with its state when it was found."""

    partition: HostedPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_data_offset: int

    @property
    def key(self) -> tuple[HostedPartition, int]:
        """The key that identifies the transaction while it is open."""
        return self.partition, self.first_offset


def verdict_on(description: TransactionDescription, open_one: HangingCandidate) -> HangingDecision:
    """Return whether to end an open transaction, and how, by the coordinator's answer."""
    if description.error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return HangingDecision.ABORT
    if description.error:
        return HangingDecision.LEAVE
    if description.state.startswith("Prepare"):
        return HangingDecision.LEAVE  # the coordinator is sending the marker
    if description.producer_id != open_one.producer_id:
        return HangingDecision.ABORT
    ahead = description.producer_epoch - open_one.producer_epoch
    if ahead < 0:
        return HangingDecision.LEAVE  # the answer is older than the partition's state
    name = (open_one.partition.topic, open_one.partition.index)
    if description.state == "Ongoing" and name in description.partitions:
        return HangingDecision.LEAVE
    if description.state == "CompleteCommit" and ahead == 1:
        # Only a commit that raised the epoch leads to this state (KIP-890).
        return HangingDecision.COMMIT
    return HangingDecision.ABORT


class OpenSince:
    """The time at which each open transaction was first seen, and the time to ask about it next.

    Transactions that are no longer open are forgotten. Times are monotonic ms.
    """

    def __init__(self) -> None:
        # (first seen, next question).
        self._since: dict[tuple[HostedPartition, int], tuple[int, int]] = {}

    def looking(
        self, open_now: Iterable[HangingCandidate | None], now_ms: int
    ) -> Steps[list[HangingCandidate]]:
        """Return the transactions about which the coordinator must be asked now.

        The next question about each of them is due at about twice its age. A None in `open_now` is
        no transaction, and only counts towards the length of a step.
        """
        since = {}
        due = []
        for count, each in enumerate(open_now, 1):
            if each is not None:
                seen_ms, next_ms = self._since.get(each.key, (now_ms, now_ms + ASK_AFTER_MS))
                if now_ms >= next_ms and len(due) < QUESTIONS_PER_SCAN:
                    due.append(each)
                    next_ms = now_ms + min(max(now_ms - seen_ms, ASK_AFTER_MS), ASK_AGAIN_MS_MAX)
                since[each.key] = (seen_ms, next_ms)
            if count % TRANSACTIONS_PER_STEP == 0:
                yield
        self._since = since
        return due

    def older_than(self, age_ms: int, now_ms: int) -> int:
        """Return the number of transactions that have been open for at least this age."""
        return sum(now_ms - seen_ms >= age_ms for seen_ms, _ in self._since.values())


class Markers(Protocol):
    async def write_txn_markers(self, request: WriteMarkers) -> Any: ...


class HangingTransactionReaper:
    """The reaper, which ends hanging transactions in the partitions that this broker leads.

    hanging_after_ms: the age from which an open transaction is counted as hanging.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        coordinators: TransactionCoordinators,
        markers: Markers,
        transport: PeerTransport,
        *,
        node_id: int,
        scan_ms: int,
        hanging_after_ms: int,
    ) -> None:
        self._replicas = replicas
        self._coordinators = coordinators
        self._markers = markers
        self._transport = transport
        self._node_id = node_id
        self._scan_ms = scan_ms
        self._hanging_after_ms = hanging_after_ms
        self._open = OpenSince()
        self.ended_count = 0
        self.hanging_count = 0
        transport.on_request(PeerMessage.DESCRIBE_TRANSACTION, self._asked)
        self._task = background_task("hanging transactions", self._run())

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def scan(self) -> None:
        clock = self._replicas.clock
        # All advances, since these times are not stored.
        now_ms = clock.monotonic_ms() + clock.advanced_since_ms(0)
        looking = self._open.looking(self._open_now(), now_ms)
        due = await self._replicas.work.run("look for orphaned transactions", looking)
        self.hanging_count = self._open.older_than(self._hanging_after_ms, now_ms)
        for open_one in due:
            try:
                await self._settle(open_one)
            except (PeerError, MalformedPeerMessage) as error:
                logger.info("%s: the transaction coordinator does not answer: %s", open_one, error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._scan_ms / 1000)
            try:
                await self.scan()
            except Exception:  # the next scan retries
                logger.exception("the scan for hanging transactions failed")

    def _open_now(self) -> Iterator[HangingCandidate | None]:
        """Yield the open transactions of led partitions, and None after each checked producer.

        The transactional ids of producers without an open transaction are forgotten.
        """
        for partition in self._replicas:
            if partition.leader is None or partition.log.is_failed:
                continue
            for first_offset, producer_id in partition.log.producer_state.ongoing():
                yield _snapshot(partition, producer_id, first_offset)
            for producer_id in list(partition.transactional_ids):
                entry = partition.log.producer_state.entry(producer_id)
                if entry is None or entry.transaction_first_offset < 0:
                    partition.transactional_ids.pop(producer_id, None)
                yield None

    async def _settle(self, open_one: HangingCandidate) -> None:
        partition = open_one.partition
        transactional_id = partition.transactional_ids.get(open_one.producer_id)
        if transactional_id is None:
            return
        description = await self._describe(transactional_id)
        if description is None:
            return
        verdict = verdict_on(description, open_one)
        unchanged = _snapshot(partition, open_one.producer_id, open_one.first_offset) == open_one
        if verdict is HangingDecision.LEAVE or partition.leader is None or not unchanged:
            return
        logger.warning(
            "%r: the transaction of %r, open since offset %d, has ended for its coordinator or "
            "is unknown to it, so the missing marker is written: %s",
            partition,
            transactional_id,
            open_one.first_offset,
            verdict.value,
        )
        marker = TransactionMarker(
            open_one.producer_id,
            open_one.producer_epoch,
            open_one.coordinator_epoch,
            verdict is HangingDecision.COMMIT,
            ((partition.topic, partition.index),),
        )
        await self._markers.write_txn_markers(WriteMarkers((marker,)))
        self.ended_count += 1

    async def _describe(self, transactional_id: str) -> TransactionDescription | None:
        node = self._coordinators.leader_of(transactional_id)
        if node is None:
            return None
        if node == self._node_id:
            return self._coordinators.describe(transactional_id)
        answer, _ = await self._transport.request(
            node,
            PeerMessage.DESCRIBE_TRANSACTION,
            encode_message(DescribeTransaction(transactional_id)),
            timeout_ms=ASK_TIMEOUT_MS,
        )
        return decode_message(TransactionDescription, answer)

    def _asked(self, peer: int, header: bytes, _: Any, reply: Callable[..., Any]) -> None:
        request = decode_message(DescribeTransaction, header)
        reply(encode_message(self._coordinators.describe(request.transactional_id)), ())


def _snapshot(
    partition: HostedPartition, producer_id: int, first_offset: int
) -> HangingCandidate | None:
    entry = partition.log.producer_state.entry(producer_id)
    if entry is None or entry.transaction_first_offset != first_offset:
        return None
    return HangingCandidate(
        partition,
        producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        first_offset,
        entry.last_data_offset,
    )
