"""Append: records are sent and polled, plainly or in transactions of one to four steps.

Jepsen's workload, with one addition: a new client sometimes takes the transactional id of another
one that lives, so that two believe it theirs. A client ends after a while, or when it may be
broken.
"""

import random
from typing import Literal

from ....client.view_source import Source
from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ...judge.history.progress import UnreadPartitions, highest_offsets
from ...judge.history.recorder import Recorder
from ...judge.history.schema import Outcome
from .incarnations import Stop, Tally, ending, one_after_another, pause
from .payloads import plain
from .recorded_consumer import RecordedConsumer
from .recorded_producer import RecordedProducer
from .settings import APPEND, COMPRESSIONS, LoadSettings

PARTITIONS_READ_MAX = 3  # by one client, besides those that nobody has read
Mode = Literal["plain", "idempotent", "transactional"]


async def append(
    source: Source,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Stop,
    dice: random.Random,
    *,
    name: str,
    mode: Mode,
    others: tuple[str, ...] = (),
    unread: UnreadPartitions | None = None,
    tally: Tally | None = None,
) -> None:
    """Append until `stop()`, client after client.

    name: the transactional id; others: the ids of others that may be taken. unread: shared by
    those who shall read for one another.
    """
    unread = UnreadPartitions() if unread is None else unread

    def make() -> _Client:
        chosen = name
        if others and dice.random() < settings.stolen_share:
            chosen = dice.choice(others)
        return _Client(source, recorder, settings, dice, unread, chosen, mode)

    await one_after_another(make, stop, dice, settings, tally)


class _Client:
    """One incarnation: a producer and a consumer, one operation after the other."""

    def __init__(
        self,
        source: Source,
        recorder: Recorder,
        settings: LoadSettings,
        dice: random.Random,
        unread: UnreadPartitions,
        transactional_id: str,
        mode: Mode,
    ) -> None:
        process = recorder.new_process()
        self._recorder, self._settings, self._dice = recorder, settings, dice
        self._unread, self._mode = unread, mode
        self._producer = RecordedProducer(
            source,
            recorder,
            process,
            settings,
            transactional_id=transactional_id if mode == "transactional" else None,
            is_idempotent=mode != "plain",
            is_v1=dice.random() < settings.v1_share,
            compression=dice.choice(COMPRESSIONS),
            patience_ms=settings.patient_ms if dice.random() < settings.patient_share else None,
        )
        self._consumer = RecordedConsumer(source, recorder, process, settings)
        self._has_assignment = False
        self._polled: dict[str, int] = {}

    @property
    def is_over(self) -> bool:
        return self._producer.is_over

    async def open(self) -> None:
        if self._mode == "transactional":
            await self._producer.initialize()

    async def work(self) -> None:
        if not self._has_assignment or self._dice.random() < self._settings.reassign_share:
            await self._assign()
        self._polled = {}
        self._consumer.begin()
        if self._mode == "transactional":
            await self._transact()
        elif self._dice.random() < 1 / 2:
            await self._poll()
            self._unread.saw({}, self._polled)
        else:
            await self._send()
            await self._producer.settle()
            self._unread.saw(self._producer.highest, {})
        await pause(self._settings.pause_ms, self._dice)

    async def close(self) -> None:
        await ending(self._producer.close(), self._consumer.close())

    async def _transact(self) -> None:
        settings, dice, producer = self._settings, self._dice, self._producer
        await producer.begin()
        steps = dice.randint(1, settings.steps_max)
        abort_before = dice.randint(1, steps) if dice.random() < settings.abort_share else steps + 1
        problem: KafkaError | None = None
        try:
            for step in range(1, steps + 1):
                if step == abort_before:
                    break
                # an empty transaction proves nothing: the first step sends
                if step == 1 or dice.random() < 1 / 2:
                    await self._send()
                else:
                    await self._poll()
        except KafkaError as caught:
            problem = caught
        if await producer.end(problem, is_aborted=abort_before <= steps) is Outcome.OK:
            self._unread.saw(producer.highest, self._polled)
        else:
            self._consumer.rewind()

    async def _send(self) -> None:
        dice, settings = self._dice, self._settings
        partition = dice.randrange(settings.append_partitions)
        for _ in range(dice.randint(1, settings.records_per_send_max)):
            value = self._recorder.new_value()
            content = plain(value, dice.randint(0, settings.filler_bytes_max))
            await self._producer.send(APPEND, partition, value, content)

    async def _poll(self) -> None:
        transaction = self._producer.transaction
        records = await self._consumer.poll(self._settings.poll_ms, 500, transaction)
        found = highest_offsets((f"{r.topic}/{r.partition}", r.offset) for r in records)
        for partition, offset in found.items():
            self._polled[partition] = max(self._polled.get(partition, -1), offset)

    async def _assign(self) -> None:
        dice, count = self._dice, self._settings.append_partitions
        chosen = dice.sample(range(count), dice.randint(1, min(count, PARTITIONS_READ_MAX)))
        wanted = self._unread.widen([f"{APPEND}/{p}" for p in chosen], dice.random())
        await self._consumer.assign_near_end([_partition(name) for name in wanted], dice)
        self._has_assignment = True


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return topic, int(number)
