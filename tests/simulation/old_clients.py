"""Transactional producers that behave like clients before KIP-360, with short timeouts.

After a timeout such a client repeats a request on a new connection, and the abandoned request may
still arrive. After a batch that no attempt appended, it aborts by EndTxn, and requests a new epoch
only for its next transaction. Until then late requests have a valid epoch.

Each transaction stays open for a moment. Its operations are recorded in the history of the run.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from oncelog.client.cluster_view import ClusterView
from oncelog.client.connection import BrokerConnection
from oncelog.client.coordinator_lookup import find_coordinator
from oncelog.proof.chaos.load.incarnations import pause
from oncelog.proof.chaos.load.payloads import plain
from oncelog.proof.chaos.load.settings import APPEND, LoadSettings
from oncelog.proof.judge.history.outcomes import (
    outcome_of_send,
    outcome_of_transaction,
)
from oncelog.proof.judge.history.recorder import Begun, Recorder
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.errors import ErrorCode, KafkaError, error_for
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END = 0, 22, 24, 26
PRODUCE_VERSION, INIT_VERSION, ADD_VERSION, END_VERSION = 7, 1, 1, 1
TRANSACTION = 1
TIMEOUTS_MS = (150, 500)  # of one request
GIVEN_UP_S = 4.0  # then a client abandons its transaction
OPEN_S = 0.1  # a transaction, after each batch
BEFORE_A_NEW_EPOCH_S = 1.0
LIFE = (3, 40)  # transactions
TRIES = (1, 5)  # of a batch: some clients abandon it at once, others keep their epoch for long
BATCHES_MAX = 3  # of a transaction, for each of its partitions


async def transact(
    bootstrap: str,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Callable[[], bool],
    rng: random.Random,
    name: str,
) -> None:
    """Run one client after another until `stop()`. `name` is their transactional id."""
    while not stop():
        client = _OldClient(bootstrap, recorder, settings, rng, name)
        try:
            await client.live(stop)
        except (KafkaError, TimeoutError):
            await asyncio.sleep(rng.expovariate(1 / BEFORE_A_NEW_EPOCH_S))
        finally:
            await client.close()


class _OldClient:
    """A client with one producer epoch. It ends after an exception or an abandoned batch."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        settings: LoadSettings,
        rng: random.Random,
        name: str,
    ) -> None:
        self._recorder, self._settings, self._rng, self._name = recorder, settings, rng, name
        self._view = ClusterView(bootstrap, timeout_ms=1_000)
        self._timeout_ms = rng.choice(TIMEOUTS_MS)
        self._tries_max = rng.choice(TRIES)
        self._process = recorder.new_process()
        self._identity = (-1, -1)
        self._next: dict[int, int] = {}
        self._coordinator: int | None = None

    async def close(self) -> None:
        await self._view.close()

    async def live(self, stop: Callable[[], bool]) -> None:
        await self._initialize()
        for _ in range(self._rng.randint(*LIFE)):
            if stop() or not await self._transact():
                return
            await pause(self._settings.pause_ms / 2, self._rng)

    async def _initialize(self) -> None:
        row = self._recorder.initialize_invoked(self._process, self._name)
        fields = {
            "transactional_id": self._name,
            "transaction_timeout": self._settings.transaction_timeout_ms,
        }
        try:
            answer = await self._ask(INIT_PRODUCER_ID, INIT_VERSION, fields)
        except KafkaError as problem:
            error = type(problem).__name__
            self._recorder.initialize_ended(row, OpOutcome.INFO, error=error)
            raise
        self._identity = answer.producer_id, answer.producer_epoch
        self._recorder.initialize_ended(
            row, OpOutcome.OK, producer_id=self._identity[0], epoch=self._identity[1]
        )

    async def _transact(self) -> bool:
        """Run one transaction, and return whether the next transaction may use the same epoch."""
        rng, count = self._rng, self._settings.append_partitions
        transaction = self._recorder.begin(self._process, self._name, *self._identity)
        is_whole = True
        try:
            partitions = rng.sample(range(count), rng.randint(1, count))
            await self._add(partitions)
            for partition in partitions * rng.randint(1, BATCHES_MAX):
                is_whole = await self._send(partition, transaction)
                if not is_whole:
                    break
                await asyncio.sleep(rng.expovariate(1 / OPEN_S))
        except KafkaError as problem:
            self._recorder.transaction_ended(transaction, OpOutcome.FAIL, type(problem).__name__)
            raise
        if is_whole and rng.random() >= self._settings.abort_share:
            await self._commit(transaction)
        else:
            await self._abort(transaction)
        if not is_whole:
            await asyncio.sleep(rng.expovariate(1 / BEFORE_A_NEW_EPOCH_S))
        return is_whole

    async def _add(self, partitions: list[int]) -> None:
        fields = {
            "v3_and_below_transactional_id": self._name,
            "v3_and_below_producer_id": self._identity[0],
            "v3_and_below_producer_epoch": self._identity[1],
            "v3_and_below_topics": [{"name": APPEND, "partitions": partitions}],
        }
        await self._ask(ADD_PARTITIONS, ADD_VERSION, fields)

    async def _send(self, partition: int, transaction: Begun) -> bool:
        """Produce one record, and return whether it was acknowledged.

        Without an acknowledgement the record may still arrive later.
        """
        recorder, value = self._recorder, self._recorder.new_value()
        row = recorder.send_invoked(self._process, f"{APPEND}/{partition}", value, transaction)
        sequence = self._next.get(partition, 0)
        self._next[partition] = sequence + 1
        batch = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, None, plain(value, 0))],
            transactional=True,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=sequence,
        )
        tries = 0
        wanted = ProduceTopic(APPEND, None, [ProducePartition(partition, batch)])
        request = ProduceRequest(self._name, -1, 10_000, [wanted])
        body = produce.encode_request(request, PRODUCE_VERSION)
        while True:
            tries += 1
            try:
                connection = await self._view.leader_of(APPEND, partition)
                answer = await connection.send(
                    PRODUCE, PRODUCE_VERSION, body, timeout_ms=self._timeout_ms
                )
                (one,) = produce.decode_response(answer, PRODUCE_VERSION).topics[0].partitions
                if not one.error_code:
                    recorder.send_ended(row, OpOutcome.OK, offset=one.base_offset)
                    return True
                error, outcome = error_for(one.error_code), outcome_of_send(one.error_code, tries)
            except KafkaError as problem:
                error, outcome = problem, OpOutcome.INFO
            await self._look_again()
            if not error.retriable or tries >= self._tries_max:
                recorder.send_ended(row, outcome, error=type(error).__name__)
                return False

    async def _commit(self, transaction: Begun) -> None:
        self._recorder.commit_invoked(transaction)
        attempts, code = [0], 0
        try:
            await self._ask(END, END_VERSION, self._ending(True), attempts)
        except KafkaError as problem:
            code = problem.number
        outcome = outcome_of_transaction(commit_error=code or None, attempts=attempts[0])
        error = type(error_for(code)).__name__ if code else None
        self._recorder.transaction_ended(transaction, outcome, error)
        if code:
            raise error_for(code)

    async def _abort(self, transaction: Begun) -> None:
        """Send EndTxn to abort, and record the transaction as failed, whatever the answer is."""
        try:
            await self._ask(END, END_VERSION, self._ending(False))
        finally:
            self._recorder.transaction_ended(transaction, OpOutcome.FAIL, None)

    def _ending(self, is_commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self._name,
            "producer_id": self._identity[0],
            "producer_epoch": self._identity[1],
            "committed": is_commit,
        }

    async def _ask(
        self, api_key: int, version: int, fields: dict[str, Any], attempts: list[int] | None = None
    ) -> Any:
        """Send a request to the coordinator, and repeat it after retriable errors.

        Return the answer. Raises KafkaError for other errors, and after the deadline. The number in
        `attempts` is increased for each request.
        """
        end_s = time.monotonic() + GIVEN_UP_S
        while True:
            try:
                connection = await self._to_coordinator()
                if attempts is not None:
                    attempts[0] += 1
                answer = await connection.call(
                    api_key, fields, newest=version, timeout_ms=self._timeout_ms
                )
                if code := _code_of(answer):
                    raise error_for(code)
                return answer
            except KafkaError as problem:
                if not problem.retriable or time.monotonic() > end_s:
                    raise
                if problem.number != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                await asyncio.sleep(0.03)

    async def _to_coordinator(self) -> BrokerConnection:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self._view, self._name, TRANSACTION)
        return await self._view.broker(self._coordinator, "transactions")

    async def _look_again(self) -> None:
        try:
            await self._view.refresh([APPEND])
        except KafkaError:
            return


def _code_of(answer: Any) -> int:
    """Return the error code of an answer, or the largest error code of its partitions."""
    if hasattr(answer, "error_code"):
        return int(answer.error_code)
    topics = answer.results_by_topic_v3_and_below
    return max(int(p.partition_error_code) for t in topics for p in t.results_by_partition)
