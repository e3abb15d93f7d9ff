"""A producer of our client library that records every operation.

One object is one client. When `is_over`, a new client has to be created, as after a fence, or when
the outcome of a commit is unknown. Errors of records are recorded in the history. `initialize`,
`begin` and `send` raise their errors unchanged, and `commit` and `end` return an outcome.
"""

from ....client.produce.delivery import Delivery
from ....client.producer import Producer
from ....client.view_source import Source
from ....wire.errors import KafkaError
from ...judge.history.outcomes import (
    ENDS_THE_PROCESS,
    outcome_of_send,
    outcome_of_transaction,
)
from ...judge.history.recorder import Begun, Recorder
from ...judge.history.rows import Handle
from ...judge.history.schema import OpOutcome
from .settings import LoadSettings

COMMIT_CALLS_MAX = 2  # a commit whose deadline passed may be requested again


class RecordedProducer:
    """A producer that records its operations in the history.

    It is transactional with a transactional id, else idempotent unless `is_idempotent` is False.
    """

    def __init__(
        self,
        source: Source,
        recorder: Recorder,
        process: int,
        settings: LoadSettings,
        *,
        transactional_id: str | None = None,
        is_idempotent: bool = True,
        is_v1: bool = False,
        compression: str = "none",
        patience_ms: int | None = None,
    ) -> None:
        self.process, self.transactional_id, self._recorder = process, transactional_id, recorder
        self.is_over = False
        self.session = 0
        self.transaction: Begun | None = None
        self.highest: dict[str, int] = {}  # of the last operation: highest offsets by partition
        self._unsettled: list[tuple[Handle, str, Delivery]] = []
        options: dict[str, object] = {}
        if transactional_id is not None:
            options["transactional_id"] = transactional_id
            options["transaction_timeout_ms"] = settings.transaction_timeout_ms
            options["oncelog_transaction_version_max"] = 1 if is_v1 else 2
        elif not is_idempotent:
            # A retry could duplicate a record, and two batches in flight could swap places.
            options |= {"enable_idempotence": False, "retries": 0}
            options["max_in_flight_requests_per_connection"] = 1
        self._producer = Producer(
            source,
            linger_ms=2,
            compression_type=compression,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=patience_ms or settings.patience_ms,
            max_block_ms=patience_ms or settings.patience_ms,
            **options,
        )
        self.send_offsets = self._producer.send_offsets_to_transaction
        self.close = self._producer.close

    async def initialize(self) -> None:
        """Call InitProducerId and record it, or raise KafkaError."""
        assert self.transactional_id is not None
        begun = self._recorder.initialize_invoked(self.process, self.transactional_id)
        try:
            await self._producer.init_transactions()
        except KafkaError as problem:
            self.is_over = True
            self._recorder.initialize_ended(begun, OpOutcome.INFO, error=name_of(problem))
            raise
        identity = self._producer.identity
        self._recorder.initialize_ended(
            begun, OpOutcome.OK, producer_id=identity.producer_id, epoch=identity.producer_epoch
        )

    async def begin(self) -> Begun:
        """Begin a transaction, or raise KafkaError."""
        assert self.transactional_id is not None
        try:
            await self._producer.begin_transaction()
        except KafkaError:
            self.is_over = True
            raise
        identity = self._producer.identity
        self.transaction = self._recorder.begin(
            self.process, self.transactional_id, identity.producer_id, identity.producer_epoch
        )
        return self.transaction

    async def send(self, topic: str, partition: int, value: int, content: bytes) -> None:
        """Send a record. `settle`, `commit` or `abort` report its outcome.

        Raises KafkaError when the record was not accepted.
        """
        name = f"{topic}/{partition}"
        row = self._recorder.send_invoked(
            self.process, name, value, self.transaction, session=self.session
        )
        try:
            delivery = await self._producer.send(topic, content, partition=partition)
        except KafkaError as problem:
            self._recorder.send_ended(row, OpOutcome.FAIL, error=name_of(problem))
            raise
        self._unsettled.append((row, name, delivery))

    async def settle(self) -> None:
        """Wait for the records that were sent outside of transactions, and record their outcomes.

        After a failed record, `session` is increased, because the order of records across a failure
        is not checked.
        """
        self.highest = {}
        for row, name, delivery in self._unsettled:
            try:
                offset = (await delivery).offset
            except KafkaError as problem:
                outcome = outcome_of_send(problem.number, None)
                self._recorder.send_ended(row, outcome, error=name_of(problem))
                self.is_over |= problem.fatal
                self.session += 1
            else:
                self._written(row, name, offset)
        self._unsettled.clear()

    async def commit(self) -> OpOutcome:
        """Commit the transaction, and return its outcome as far as it is known.

        After INFO or a fatal error, `is_over` is set.
        """
        transaction = self.transaction
        assert transaction is not None
        before = self._producer.ends_sent
        error: KafkaError | None = None
        for _ in range(COMMIT_CALLS_MAX):
            self._recorder.commit_invoked(transaction)
            try:
                await self._producer.commit_transaction()
                error = None
                break
            except KafkaError as problem:
                error = problem
                if problem.fatal or problem.abortable:
                    break
        attempts = self._producer.ends_sent - before
        outcome = OpOutcome.OK
        if error is not None:
            has_aborted = None
            if error.abortable and not error.fatal:
                has_aborted = await self._has_aborted()
            else:
                self.is_over = True
            outcome = outcome_of_transaction(
                commit_invoked=attempts > 0,
                commit_error=error.number,
                attempts=attempts,
                # V1 aborts by a new epoch, which is granted whatever was decided before
                abort_succeeded=has_aborted if attempts <= 1 else None,
            )
        self._end(outcome, error)
        return outcome

    async def end(
        self, problem: KafkaError | None, *, is_aborted: bool, is_flushed: bool = False
    ) -> OpOutcome:
        """Commit the transaction, or abort it if `is_aborted` or if an operation raised `problem`.

        Return the recorded outcome. With `is_flushed` an aborted transaction's records are flushed
        first. Only flushed records are certainly in the log, hidden from readers.
        """
        if problem is None and is_aborted and is_flushed:
            try:
                await self._producer.flush()
            except KafkaError as caught:
                problem = caught
        if problem is None and not is_aborted:
            return await self.commit()
        await self.abort(problem)
        self.is_over |= problem is not None and problem.number in ENDS_THE_PROCESS
        return OpOutcome.FAIL

    async def abort(self, why: KafkaError | None = None) -> None:
        """Abort the transaction, and record that it has failed.

        The outcome is certain even if the abort fails, because no commit was requested.
        """
        await self._has_aborted()
        self._end(OpOutcome.FAIL, why)

    async def _has_aborted(self) -> bool:
        try:
            await self._producer.abort_transaction()
        except KafkaError:
            self.is_over = True
            return False
        return True

    def _end(self, outcome: OpOutcome, error: KafkaError | None) -> None:
        assert self.transaction is not None
        self.highest = {}
        for row, name, delivery in self._unsettled:
            problem = delivery.exception() if delivery.done() else None
            if not delivery.done():
                self._recorder.send_ended(row, OpOutcome.INFO)
            elif problem is None:
                self._written(row, name, delivery.result().offset)
            else:
                told = name_of(problem) if isinstance(problem, KafkaError) else str(problem)
                self._recorder.send_ended(row, OpOutcome.INFO, error=told)
        self._unsettled.clear()
        told = None if error is None else name_of(error)
        self._recorder.transaction_ended(self.transaction, outcome, told)
        self.transaction = None
        self.is_over |= outcome is OpOutcome.INFO

    def _written(self, row: Handle, partition: str, offset: int) -> None:
        self._recorder.send_ended(row, OpOutcome.OK, offset=offset)
        self.highest[partition] = max(self.highest.get(partition, -1), offset)


def name_of(problem: KafkaError) -> str:
    """Return the name of an error's code, for counts of errors."""
    return f"{type(problem).__name__} ({problem.number})"
