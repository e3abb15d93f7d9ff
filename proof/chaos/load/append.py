"""The workload append, which sends and polls, alone or in transactions of 1 to 4 steps.

This is Jepsen's workload, with one addition. A new client sometimes uses the transactional id of
another live client, so that two clients use the same id. A client ends after a while, or when it
may be broken.
"""

from typing import Literal

from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ...judge.history.progress import UnreadPartitions, highest_offsets
from ...judge.history.schema import OpOutcome
from .incarnations import LoadContext, WorkloadClient, one_after_another, pause
from .payloads import plain
from .settings import APPEND

PARTITIONS_READ_MAX = 3  # by one client, besides those that no client has read
Mode = Literal["plain", "idempotent", "transactional"]


async def append(
    context: LoadContext,
    *,
    name: str,
    mode: Mode,
    others: tuple[str, ...] = (),
    unread: UnreadPartitions,
) -> None:
    """Run clients of the workload one after another until `stop()`.

    name: the transactional id. mode: plain, idempotent or transactional. others: ids of other
    clients that may be used. unread: the partitions with unread records, shared by clients that
    also read records which the others sent.
    """
    rng = context.rng

    def make() -> _Client:
        chosen = name
        if others and rng.random() < context.settings.stolen_share:
            chosen = rng.choice(others)
        return _Client(context, unread, chosen, mode)

    await one_after_another(make, context)


class _Client(WorkloadClient):
    def __init__(
        self, context: LoadContext, unread: UnreadPartitions, transactional_id: str, mode: Mode
    ) -> None:
        super().__init__(
            context,
            transactional_id if mode == "transactional" else None,
            is_idempotent=mode != "plain",
            patient_share=context.settings.patient_share,
        )
        self._unread, self._mode = unread, mode
        self._has_assignment = False
        self._polled: list[tuple[str, int]] = []  # of this operation: partition, offset

    async def work(self) -> None:
        if not self._has_assignment or self._rng.random() < self._settings.reassign_share:
            await self._assign()
        self._polled.clear()
        self._consumer.begin()
        if self._mode == "transactional":
            await self._transact()
        elif self._rng.random() < 1 / 2:
            await self._poll()
            self._unread.saw({}, highest_offsets(self._polled))
        else:
            await self._send()
            await self._producer.settle()
            self._unread.saw(self._producer.highest, {})
        await pause(self._settings.pause_ms, self._rng)

    async def _transact(self) -> None:
        settings, rng, producer = self._settings, self._rng, self._producer
        await producer.begin()
        steps = rng.randint(1, settings.steps_max)
        abort_before = rng.randint(1, steps) if rng.random() < settings.abort_share else steps + 1
        problem: KafkaError | None = None
        try:
            for step in range(1, steps + 1):
                if step == abort_before:
                    break
                # an empty transaction proves nothing, so the first step sends
                if step == 1 or rng.random() < 1 / 2:
                    await self._send()
                else:
                    await self._poll()
        except KafkaError as caught:
            problem = caught
        is_flushed, is_aborted = rng.random() < 1 / 2, abort_before <= steps
        ended = producer.end(problem, is_aborted=is_aborted, is_flushed=is_flushed)
        if await ended is OpOutcome.OK:
            self._unread.saw(producer.highest, highest_offsets(self._polled))
        else:
            self._consumer.rewind()

    async def _send(self) -> None:
        rng, settings = self._rng, self._settings
        partition = rng.randrange(settings.append_partitions)
        for _ in range(rng.randint(1, settings.records_per_send_max)):
            value = self._recorder.new_value()
            content = plain(value, rng.randint(0, settings.filler_bytes_max))
            await self._producer.send(APPEND, partition, value, content)

    async def _poll(self) -> None:
        transaction = self._producer.transaction
        records = await self._consumer.poll(self._settings.poll_ms, 500, transaction)
        self._polled += ((f"{r.topic}/{r.partition}", r.offset) for r in records)

    async def _assign(self) -> None:
        rng, count = self._rng, self._settings.append_partitions
        chosen = rng.sample(range(count), rng.randint(1, min(count, PARTITIONS_READ_MAX)))
        wanted = self._unread.widen([f"{APPEND}/{p}" for p in chosen], rng.random())
        await self._consumer.assign_near_end([_partition(name) for name in wanted], rng)
        self._has_assignment = True


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return topic, int(number)
