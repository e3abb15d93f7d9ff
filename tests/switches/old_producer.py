"""A producer of which a scenario controls each request, and the connection of the request.

It behaves like a client before KIP-890, or like one without transactions, with the same sequence
numbers. The history has all its actions. A late request is sent late, on the connection of the
original request, which makes no difference to a broker.
"""

import asyncio
import time
from typing import Any

from oncelog.client.connection import BrokerConnection
from oncelog.proof.chaos.load.payloads import plain
from oncelog.proof.judge.history.outcomes import (
    outcome_of_send,
    outcome_of_transaction,
)
from oncelog.proof.judge.history.recorder import Begun
from oncelog.proof.judge.history.rows import Handle
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.errors import ErrorCode, KafkaError, NetworkException
from oncelog.wire.messages import control, produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from .context import TIMEOUT_S, Context

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END = 0, 22, 24, 26
PRODUCE_VERSION, INIT_VERSION, END_VERSION = 7, 1, 1  # before KIP-890
TRANSACTION = 1
COME_AGAIN = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
})  # fmt: skip


class OldProducer:
    """One incarnation of a producer. Without `name` (a transactional id) it is idempotent only."""

    def __init__(self, context: Context, topic: str, name: str | None = None) -> None:
        self.context, self.topic, self.name = context, topic, name
        self.process = context.recorder.new_process()
        self.identity = (-1, -1)
        self.transaction: Begun | None = None
        self._next: dict[int, int] = {}

    async def initialize(self, *, node_id: int | None = None, timeout_ms: int = 60_000) -> None:
        """Request a producer id, from node `node_id` or from the transaction coordinator."""
        fields = {"transactional_id": self.name, "transaction_timeout": timeout_ms}
        row = None
        if self.name is not None:
            row = self.context.recorder.initialize_invoked(self.process, self.name)
        answer = await self._ask(INIT_PRODUCER_ID, INIT_VERSION, fields, node_id=node_id)
        assert answer.error_code == 0, answer
        self.identity = answer.producer_id, answer.producer_epoch
        if row is not None:
            pid, epoch = self.identity
            self.context.recorder.initialize_ended(row, OpOutcome.OK, producer_id=pid, epoch=epoch)

    async def begin(self, *partitions: int, channel: str = "") -> None:
        """Record the begin of a transaction, and add these partitions to it."""
        assert self.name is not None
        self.transaction = self.context.recorder.begin(self.process, self.name, *self.identity)
        assert await self.add(*partitions, channel=channel) == 0

    async def add(self, *partitions: int, channel: str = "") -> int:
        fields = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.identity[0],
            "v3_and_below_producer_epoch": self.identity[1],
            "v3_and_below_topics": [{"name": self.topic, "partitions": list(partitions)}],
        }
        answer = await self._ask(ADD_PARTITIONS, 1, fields, channel=channel)
        (topic,) = answer.results_by_topic_v3_and_below
        return max(p.partition_error_code for p in topic.results_by_partition)

    async def send(
        self,
        partition: int = 0,
        *,
        transaction: Begun | None = None,
        channel: str = "",
        node_id: int | None = None,
        timeout_ms: int = 10_000,
    ) -> int:
        """Produce a new record, and return the error code of the broker or of the network."""
        row, batch = self.record(partition, transaction or self.transaction)
        try:
            code, offset = await self.deliver(batch, partition, channel, node_id, timeout_ms)
        except KafkaError as problem:
            self.context.recorder.send_ended(row, OpOutcome.INFO, error=type(problem).__name__)
            return problem.number
        self.note(row, code, offset)
        return code

    def record(self, partition: int, transaction: Begun | None = None) -> tuple[Handle, bytes]:
        """Record a new record in the history. Return its row and a batch with the record."""
        recorder = self.context.recorder
        value = recorder.new_value()
        row = recorder.send_invoked(self.process, f"{self.topic}/{partition}", value, transaction)
        sequence = self._next.get(partition, 0)
        self._next[partition] = sequence + 1
        batch = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, None, plain(value, 0))],
            transactional=self.name is not None,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=sequence,
        )
        return row, batch

    def note(self, row: Handle, code: int, offset: int, attempts: int = 1) -> None:
        """Record the outcome of a record in the history, by the error code of its last answer."""
        outcome = outcome_of_send(code or None, attempts)
        self.context.recorder.send_ended(
            row, outcome, offset=offset if code == 0 else -1, error=str(code) if code else None
        )

    async def deliver(
        self,
        batch: bytes,
        partition: int,
        channel: str = "",
        node_id: int | None = None,
        timeout_ms: int = 10_000,
    ) -> tuple[int, int]:
        """Produce a batch, and return (error code, offset). Raises KafkaError for a lost answer."""
        connection = await self.to_leader(partition, channel, node_id)
        body = self._produce(batch, partition)
        answer = await connection.send(PRODUCE, PRODUCE_VERSION, body, timeout_ms=timeout_ms)
        (one,) = produce.decode_response(answer, PRODUCE_VERSION).topics[0].partitions
        return one.error_code, one.base_offset

    async def post(self, batch: bytes, partition: int, channel: str) -> None:
        """Send a batch without waiting for its answer."""
        connection = await self.to_leader(partition, channel)
        await connection.post(PRODUCE, PRODUCE_VERSION, self._produce(batch, partition))

    async def to_leader(
        self, partition: int, channel: str = "", node_id: int | None = None
    ) -> BrokerConnection:
        """Return this producer's connection to a node, by default to the partition's leader."""
        leader = await self.context.leader(self.topic, partition) if node_id is None else node_id
        return await self.context.connection(leader, f"{self.process}{channel}")

    async def end(self, is_commit: bool, *, channel: str = "", attempts: int = 1) -> OpOutcome:
        """Send EndTxn, record and return its outcome.

        `attempts` counts all EndTxn requests so far.
        """
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        recorder = self.context.recorder
        if is_commit:
            recorder.commit_invoked(transaction)
        answer = await self._ask(END, END_VERSION, self.ending(is_commit), channel=channel)
        code = answer.error_code
        outcome = OpOutcome.FAIL
        if is_commit:
            outcome = outcome_of_transaction(commit_error=code or None, attempts=attempts)
        recorder.transaction_ended(transaction, outcome, str(code) if code else None)
        return outcome

    def give_up(self) -> None:
        """Record that the producer abandons its transaction, without an EndTxn."""
        transaction, self.transaction = self.transaction, None
        assert transaction is not None
        self.context.recorder.transaction_ended(transaction, OpOutcome.FAIL, "given up")

    def ending(self, is_commit: bool) -> dict[str, Any]:
        """Return the fields of an EndTxn request."""
        return {
            "transactional_id": self.name,
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
            "committed": is_commit,
        }

    async def coordinator(self) -> int:
        """Return the node that coordinates the transactional id now."""
        assert self.name is not None
        return await self.context.admin.find_coordinator(self.name, TRANSACTION)

    def _produce(self, batch: bytes, partition: int) -> list[Any]:
        wanted = ProduceTopic(self.topic, None, [ProducePartition(partition, batch)])
        request = ProduceRequest(self.name, -1, 10_000, [wanted])
        return produce.encode_request(request, PRODUCE_VERSION)

    async def _ask(
        self,
        api_key: int,
        version: int,
        fields: dict[str, Any],
        *,
        node_id: int | None = None,
        channel: str = "",
    ) -> Any:
        """Send a request, and repeat it after a retriable error. Return the last answer."""
        deadline = time.monotonic() + TIMEOUT_S
        body = control.encode_request(api_key, version, fields)
        while True:
            at = await self.coordinator() if node_id is None else node_id
            try:
                connection = await self.context.connection(at, f"{self.process}{channel}")
                answer = control.decode_response(
                    api_key, version, await connection.send(api_key, version, [body])
                )
                if code_of(answer) not in COME_AGAIN:
                    return answer
            except NetworkException:
                pass  # a fence closes connections; another one is the answer
            assert time.monotonic() < deadline, f"API {api_key} is not answered"
            await asyncio.sleep(0.03)


def code_of(answer: Any) -> int:
    """Return the error code of an answer, or the largest error code of its partitions."""
    if hasattr(answer, "error_code"):
        return int(answer.error_code)
    topics = answer.results_by_topic_v3_and_below
    return max(int(p.partition_error_code) for t in topics for p in t.results_by_partition)
