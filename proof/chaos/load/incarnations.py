"""The common part of all workloads: clients that live for a while and are then replaced."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ....client.view_source import Source
from ....wire.errors import KafkaError, UnreleasedInstanceId
from ...judge.history.recorder import Recorder
from ...judge.history.schema import OpOutcome
from .recorded_consumer import RecordedConsumer
from .recorded_producer import RecordedProducer
from .settings import COMPRESSIONS, LoadSettings

Stop = Callable[[], bool]
AFTER_PROBLEM_MS = 100


@dataclass(slots=True)
class Tally:
    """The number of clients so far, and how often each error occurred."""

    errors: Counter[str] = field(default_factory=Counter[str])
    clients: int = 0

    def met(self, problem: KafkaError) -> None:
        self.errors[type(problem).__name__] += 1


class LoadContext(NamedTuple):
    """The common inputs of a workload's clients, such as cluster, recorder and settings."""

    source: Source
    recorder: Recorder
    settings: LoadSettings
    stop: Stop
    rng: random.Random
    tally: Tally


class Incarnation(Protocol):
    """One client of a workload, from `open` to `close`. Its methods may raise KafkaError."""

    @property
    def is_over(self) -> bool: ...
    async def open(self) -> None: ...
    async def work(self) -> None: ...
    async def close(self) -> None: ...


class WorkloadClient:
    """A client with a producer and a consumer, which executes one operation after another.

    A workload implements `work`, which executes one operation and then pauses, or raises
    KafkaError.
    """

    def __init__(
        self,
        context: LoadContext,
        transactional_id: str | None,
        *,
        is_idempotent: bool = True,
        patient_share: float = 0.0,
    ) -> None:
        self._recorder = context.recorder
        self._settings, self._rng = settings, rng = context.settings, context.rng
        self._process = context.recorder.new_process()
        self._producer = RecordedProducer(
            context.source,
            context.recorder,
            self._process,
            settings,
            transactional_id=transactional_id,
            is_idempotent=is_idempotent,
            is_v1=rng.random() < settings.v1_share,
            compression=rng.choice(COMPRESSIONS),
            patience_ms=(
                settings.patient_ms if patient_share and rng.random() < patient_share else None
            ),
        )
        self._consumer = RecordedConsumer(
            context.source, context.recorder, self._process, settings, **self._membership()
        )

    def _membership(self) -> dict[str, Any]:
        """Return the options of a consumer that is a member of a group."""
        return {}

    @property
    def is_over(self) -> bool:
        """Return whether the client may be broken, so that a new client must replace it."""
        return self._producer.is_over

    async def open(self) -> None:
        """Prepare the producer and the consumer, or raise KafkaError."""
        if self._producer.transactional_id is not None:
            await self._producer.initialize()

    async def work(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        """Close the producer and the consumer, and ignore their errors."""
        for close in (self._producer.close, self._consumer.close):
            with contextlib.suppress(KafkaError):  # nothing of it may be left
                await close()

    async def _end_after(self, operations: Awaitable[None]) -> None:
        """Await `operations`, end the transaction, and rewind the consumer unless it was committed.

        The transaction is aborted if an operation failed, and in some randomly chosen cases.
        """
        problem: KafkaError | None = None
        try:
            await operations
        except KafkaError as caught:
            problem = caught
        is_aborted = problem is None and self._rng.random() < self._settings.abort_share
        is_flushed = self._rng.random() < 1 / 2
        ended = self._producer.end(problem, is_aborted=is_aborted, is_flushed=is_flushed)
        if await ended is not OpOutcome.OK:
            self._consumer.rewind()


async def one_after_another(make: Callable[[], Incarnation], context: LoadContext) -> None:
    """Run clients one after another until `stop()`, each until `is_over` or the end of its time."""
    while not context.stop():
        await _until(make(), context)


async def _until(client: Incarnation, context: LoadContext) -> None:
    """Let a client work until `is_over`, the end of its time or `stop()`, and then close it."""
    clock, rng, tally = asyncio.get_running_loop().time, context.rng, context.tally
    end_of_life = clock() + rng.uniform(0.2, 1.0) * context.settings.life_ms_max / 1000
    tally.clients += 1
    try:
        await client.open()
        while not (context.stop() or client.is_over or clock() > end_of_life):
            try:
                await client.work()
            except KafkaError as problem:
                tally.met(problem)
                if isinstance(problem, UnreleasedInstanceId):  # until the old session ends
                    await pause(AFTER_PROBLEM_MS, rng)
                if not problem.retriable:
                    break
                await pause(AFTER_PROBLEM_MS, rng)
    except KafkaError as problem:
        tally.met(problem)
        await pause(AFTER_PROBLEM_MS, rng)
    finally:
        await client.close()


async def pause(mean_ms: float, rng: random.Random) -> None:
    """Sleep for a random time with this mean, at most five times the mean."""
    if mean_ms > 0:
        await asyncio.sleep(min(rng.expovariate(1 / mean_ms), 5 * mean_ms) / 1000)
