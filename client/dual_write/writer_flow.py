"""The common part of the two dual writers, as flows that run with or without an event loop.

It executes the protocol, opens the connection, and starts the writer. The two writers supply the
calls that wait, which are requests to Kafka, pauses, and calls of their own producer.
"""

import logging
import secrets
import time
from functools import partial
from typing import Any

from ...wire.errors import InvalidConfig, KafkaError
from ...wire.identifiers import TopicPartition
from ..failures import ClientClosed, IllegalProducerState
from ..view_source import Source
from . import decision_table, kafka_side, steps, stop_words
from .connection_flow import CLOSED, ConnectionFlow
from .database import Dialect
from .flow import Flow
from .names import DATABASE_ID_BYTES, NONCE_BYTES, session_id
from .protocol import WriterProtocol
from .steps import WriterPhase

logger = logging.getLogger(__name__)
RESOLVE_TIMEOUT_MS = 30_000
FIXED = frozenset(
    {
        "transactional_id",
        "transaction_two_phase_commit_enable",
        "enable_idempotence",
        "acks",
        "oncelog_transaction_version_max",
    }
)
PAUSE_FIRST_S, PAUSE_LAST_S = 0.05, 1.0
IDLE = (WriterPhase.READY, WriterPhase.OWING)
RESTING = steps.BecomeReady | steps.RunBlock | steps.EndBlock  # the application's turn


class WriterFlow(ConnectionFlow):
    """The common part of the asynchronous and the blocking dual writer."""

    _producer: Any = None

    def __init__(
        self,
        source: Source,
        name: str,
        connection: Any,
        /,
        *,
        creates_tables: bool = True,
        resolve_timeout_ms: int = RESOLVE_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        """Create a writer. `options` are settings of the producer.

        resolve_timeout_ms: for how long the database is asked again after it was lost in a commit.
        """
        if wrong := sorted(FIXED & {each.replace(".", "_") for each in options}):
            raise InvalidConfig(f"{', '.join(wrong)}: set by the dual write itself")
        super().__init__(name, connection)
        self._source, self._options = source, options
        self._creates_tables, self._resolve_timeout_ms = creates_tables, resolve_timeout_ms
        self._protocol = WriterProtocol(name)
        self._is_closed = False

    # --- supplied by the writers; each returns its value, or a coroutine for it

    def _new_producer(self, transactional_id: str) -> Any:
        raise NotImplementedError

    def _for_others(self, effect: steps.Effect, producer: Any) -> Any:
        """Execute an effect on a transaction of another session. The subclasses implement this."""
        raise NotImplementedError

    def _lost_answers(self, producer: Any) -> Any:
        raise NotImplementedError

    def _pause(self, pause_s: float) -> Any:
        raise NotImplementedError

    @property
    def transactional_id(self) -> str:
        """The transactional id of this session."""
        return self._protocol.transactional_id

    @property
    def phase(self) -> WriterPhase:
        """Return the phase of the protocol. A STOPPED writer must be replaced by a new object."""
        return self._protocol.phase

    @property
    def stopped_by(self) -> BaseException | None:
        """The error that stopped the writer, so that it begins no more blocks, or None."""
        if self._is_closed:
            return ClientClosed(CLOSED)
        return self._protocol.stopped_by or self._lost_for_good()

    # --- the life of a writer

    def _start(self) -> Flow[None]:
        yield from self._end_strays()
        yield from self._open_first()
        if self._creates_tables:
            yield from self._run(decision_table.create_tables())
        yield from self._advance((yield from self._new_session()))

    def _new_session(self) -> Flow[steps.Event]:
        drawn = secrets.token_hex(DATABASE_ID_BYTES)
        database = yield from self._run(decision_table.database_id(drawn))
        transactional_id = session_id(self.name, database, secrets.token_bytes(NONCE_BYTES))
        yield partial(self._new_producer, transactional_id)
        return steps.SessionStarted(transactional_id)

    def _producer_options(self, transactional_id: str) -> dict[str, Any]:
        return {
            **self._options,
            "transactional_id": transactional_id,
            "transaction_two_phase_commit_enable": True,
        }

    def _begin_block(self) -> Flow[None]:
        self._refuse_closed()
        yield from self._settle()
        self._require(*IDLE)
        yield from self._end_strays()
        self._raise_undone((yield from self._advance(steps.BlockBegun())))

    def _refuse_closed(self) -> None:
        self.refuse_forked()
        if self._is_closed:
            raise ClientClosed(CLOSED)

    def _settle(self) -> Flow[None]:
        """End the previous block, if an interruption has left it open."""
        if not self._protocol.is_amid:
            return
        reason = stop_words.DualWriteError("the last block was interrupted")
        yield from self._carry_out(self._protocol.resume(reason), undoes=reason)

    def _settle_at_close(self) -> Flow[None]:
        try:
            if not self._is_forked:
                yield from self._settle()
        except Exception as problem:
            logger.warning(
                "%s: a block stays open, and the next start of this writer will end it: %s",
                self.name,
                problem,
            )

    def _block_failed(self, problem: BaseException) -> Flow[None]:
        try:
            yield from self._advance(steps.BlockFailed(problem))
        except Exception as another:  # the first error counts
            logger.warning("%s: undoing a block failed: %s", self.name, another)

    def _block_done(self) -> Flow[None]:
        self._raise_undone((yield from self._advance(steps.BlockDone())))

    def _raise_undone(self, effect: steps.Effect) -> None:
        if isinstance(effect, steps.EndBlock) and not effect.is_committed:
            raise effect.reason or stop_words.DualWriteError("nothing of the block counts")

    def _require(self, *phases: WriterPhase) -> None:
        phase = self._protocol.phase
        # a stopped writer raises the reason itself
        if phase not in phases and phase is not WriterPhase.STOPPED:
            raise IllegalProducerState(f"the writer is {phase.name}: start it first (`with` does)")

    # --- carrying out

    def _advance(self, event: steps.Event) -> Flow[steps.Effect]:
        """Pass an event to the protocol, and execute effects until the application has to act."""
        if self._is_closed:  # the close has ended the transaction in Kafka
            yield from self._roll_back()
            yield from self._close_connection()  # SQLite refused this to another thread
        self._refuse_closed()
        return (yield from self._carry_out(self._protocol.step(event)))

    def _carry_out(
        self, effect: steps.Effect, undoes: BaseException | None = None
    ) -> Flow[steps.Effect]:
        """Execute effects until the application has to act, then raise an interruption, if any.

        A second interruption is raised immediately. undoes: the exception with which the caller has
        left the block, which rolls the block back.
        """
        interruption: BaseException | None = None
        while True:
            if isinstance(effect, steps.RunBlock) and (reason := interruption or undoes):
                effect = self._protocol.step(steps.BlockFailed(reason))
            if isinstance(effect, RESTING):
                break
            try:
                event = yield from self._perform(effect)
            except GeneratorExit:
                raise
            except BaseException as problem:
                if is_final := self._is_final(effect, problem):
                    self._protocol.stop(problem)
                if is_final or interruption is not None:
                    yield from self._roll_back()  # its locks would delay the next start
                    raise
                interruption = problem
                effect = self._protocol.resume(problem)
            else:
                if isinstance(event, steps.EndUnanswered):
                    logger.warning(
                        "%s: the transaction has not ended in Kafka yet: %s",
                        self.name,
                        event.reason,
                    )
                effect = self._protocol.step(event)
        if interruption is not None:
            raise interruption
        return effect

    def _is_final(self, effect: steps.Effect, problem: BaseException) -> bool:
        """Return whether a failure stops the writer.

        A failure outside of a block does, and an error of reading the outcome or the generation.
        """
        is_of_database = isinstance(effect, steps.ReadOrAbort | steps.ReadGeneration)
        return not self._protocol.is_amid or (is_of_database and isinstance(problem, Exception))

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        match effect:
            case steps.StartSession():
                return (yield from self._new_session())
            case steps.Claim() | steps.ReadDecisions() | steps.DeleteSession():
                return (yield from self._run(decision_table.script_of(effect)))
            case steps.ReadGeneration():
                return (yield from self._run(decision_table.script_of(effect)))
            case steps.ReadOrAbort():
                return (yield from self._resolve(effect))
            case steps.Decide():
                return (yield from self._decide(effect))
            case steps.RollBack():
                yield from self._roll_back()
                return steps.RolledBack()
            case steps.BeginBoth():
                try:
                    yield from self._begin()
                except Exception as problem:
                    return steps.BlockFailed(problem)
                return (yield from self._in_kafka(effect))
            case _:
                return (yield from self._in_kafka(effect))

    def _in_kafka(self, effect: steps.Effect) -> Flow[steps.Event]:
        producer = self._producer
        if producer is None:  # closed meanwhile
            raise ClientClosed(CLOSED)
        call = kafka_side.own_call(effect, self._protocol.transactional_id)
        if call is None:
            return (yield partial(self._for_others, effect, producer))
        known = kafka_side.known_event(effect, producer.state)
        if known is not None:
            return known
        try:
            result = yield getattr(producer, call)
        except KafkaError as problem:
            # after a call that was interrupted
            known = kafka_side.known_event(effect, producer.state)
            return known or kafka_side.event_after_error(effect, problem)
        lost = yield partial(self._lost_answers, producer)
        return kafka_side.event_after(effect, result, lost_answers=lost)

    # --- the database

    def _decide(self, effect: steps.Decide) -> Flow[steps.Event]:
        try:
            yield from self._run(Dialect(self.connection).before_commit())
            yield from self._run(decision_table.decide(effect))
        except Exception as problem:
            return steps.DatabaseRefused(problem)
        try:
            yield self.connection.commit
        except Exception as problem:
            if self._is_refused(problem):
                return steps.DatabaseRefused(problem)
            return steps.DatabaseInDoubt(problem)
        return steps.DatabaseCommitted()

    def _resolve(self, asked: steps.ReadOrAbort) -> Flow[steps.Event]:
        """Read the outcome of a transaction from the database, or insert `aborted`, with retries.

        Raises DecisionInDoubt after resolve_timeout_ms, or if the connection that the caller gave
        is lost.
        """
        until, pause_s = time.monotonic() + self._resolve_timeout_ms / 1000, PAUSE_FIRST_S
        yield from self._roll_back()
        while True:
            try:
                if self._is_lost and self._connect is not None:
                    yield from self._open()
                return (yield from self._run(decision_table.script_of(asked)))
            except Exception as problem:
                yield from self._roll_back()
                is_hopeless = self._is_lost and self._connect is None
                if is_hopeless or time.monotonic() > until:
                    raise stop_words.in_doubt(asked.key, problem) from problem
            yield partial(self._pause, pause_s)
            pause_s = min(2 * pause_s, PAUSE_LAST_S)

    def _positions(self) -> Flow[dict[TopicPartition, int]]:
        self._refuse_closed()
        yield from self._settle()
        self._require(*IDLE)
        return (yield from self._read_positions())
