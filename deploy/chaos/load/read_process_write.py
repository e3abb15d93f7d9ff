"""Read, process, write: each input becomes one output, and the offsets go with the transaction.

Members of one group read what `append` writes; a transaction takes what one poll gave, writes one
record for each to the partition of the same number (so the order can be judged), and commits the
offsets with it (KIP-447). After a transaction that did not commit the consumer goes back.
"""

import random
from functools import partial

from ....client.view_source import Source
from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ...judge.history.recorder import Begun, Recorder
from ...judge.history.schema import Outcome
from .incarnations import Stop, Tally, ending, one_after_another, pause
from .payloads import plain
from .recorded_consumer import Polled, RecordedConsumer
from .recorded_producer import RecordedProducer
from .settings import APPEND, COMPRESSIONS, OUTPUTS, LoadSettings


async def read_process_write(
    source: Source,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Stop,
    dice: random.Random,
    *,
    name: str,
    tally: Tally | None = None,
) -> None:
    """Be a member of the job until `stop()`, client after client. name: the transactional id."""
    make = partial(_Member, source, recorder, settings, dice, name)
    await one_after_another(make, stop, dice, settings, tally)


class _Member:
    """One incarnation of a worker of the job."""

    def __init__(
        self,
        source: Source,
        recorder: Recorder,
        settings: LoadSettings,
        dice: random.Random,
        name: str,
    ) -> None:
        self._process = recorder.new_process()
        self._recorder, self._settings, self._dice = recorder, settings, dice
        self._producer = RecordedProducer(
            source,
            recorder,
            self._process,
            settings,
            transactional_id=name,
            is_v1=dice.random() < settings.v1_share,
            compression=dice.choice(COMPRESSIONS),
        )
        self._consumer = RecordedConsumer(
            source,
            recorder,
            self._process,
            settings,
            group=settings.group,
            instance=name if dice.random() < settings.static_share else None,
        )

    @property
    def is_over(self) -> bool:
        return self._producer.is_over

    async def open(self) -> None:
        await self._producer.initialize()
        self._consumer.subscribe([APPEND])

    async def work(self) -> None:
        """One transaction, when there is something to do."""
        settings = self._settings
        self._consumer.begin()
        polled = await self._consumer.fetch(5 * settings.poll_ms, settings.job_records_max)
        if polled.records:
            await self._transact(polled)
        await pause(settings.pause_ms, self._dice)

    async def close(self) -> None:
        await ending(self._producer.close(), self._consumer.close())

    async def _transact(self, polled: Polled) -> None:
        producer, dice = self._producer, self._dice
        membership = self._consumer.metadata  # of the generation that these records came in
        transaction = await producer.begin()
        self._consumer.record(polled, transaction)
        problem: KafkaError | None = None
        try:
            await self._write(polled)
            offsets = self._offsets(polled, transaction)
            await producer.send_offsets(offsets, membership)
        except KafkaError as caught:
            problem = caught
        is_aborted = problem is None and dice.random() < self._settings.abort_share
        if await producer.end(problem, is_aborted=is_aborted) is not Outcome.OK:
            self._consumer.rewind()

    async def _write(self, polled: Polled) -> None:
        for record in polled.records:
            value = self._recorder.new_value()
            where = f"{record.topic}/{record.partition}"
            group = self._settings.group
            self._recorder.add("derivations", value, group, where, record.offset)
            content = plain(value, self._dice.randint(0, self._settings.filler_bytes_max))
            await self._producer.send(OUTPUTS, record.partition, value, content)

    def _offsets(self, polled: Polled, transaction: Begun) -> dict[TopicPartition, int]:
        """What to commit, by partition; written down as [first record, behind the last)."""
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for record in polled.records:
            key = (record.topic, record.partition)
            first, _ = spans.get(key, (record.offset, 0))
            spans[key] = (first, record.offset + 1)
        for (topic, partition), (first, behind) in spans.items():
            self._recorder.add(
                "offset_commits", transaction.number, self._process, self._settings.group,
                f"{topic}/{partition}", first, behind, self._recorder.now_ns(), Outcome.INFO,
            )  # fmt: skip
        return {key: behind for key, (_, behind) in spans.items()}
