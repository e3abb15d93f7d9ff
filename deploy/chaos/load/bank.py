"""Bank: transfers between partitions, each one transaction that reads and writes.

A transfer takes from one account and gives to others; an account is a partition, a record is one
side of a transfer. How much moves depends on what was read before. All sides of all transfers
together make zero: that is the invariant (`bank_check`), and it fails when a transaction is torn,
doubled or read although it was aborted.
"""

import random
from functools import partial

from ....client.view_source import Source
from ....wire.errors import KafkaError
from ...judge.history.recorder import Recorder
from ...judge.history.schema import Outcome
from .incarnations import Stop, Tally, ending, one_after_another, pause
from .payloads import leg, leg_of
from .recorded_consumer import RecordedConsumer
from .recorded_producer import RecordedProducer
from .settings import BANK, COMPRESSIONS, LoadSettings

AMOUNT_MAX = 1_000


async def bank(
    source: Source,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Stop,
    dice: random.Random,
    *,
    name: str,
    tally: Tally | None = None,
) -> None:
    """Transfer until `stop()`, client after client. name: the transactional id."""
    make = partial(_Teller, source, recorder, settings, dice, name)
    await one_after_another(make, stop, dice, settings, tally)


class _Teller:
    def __init__(
        self,
        source: Source,
        recorder: Recorder,
        settings: LoadSettings,
        dice: random.Random,
        name: str,
    ) -> None:
        process = recorder.new_process()
        self._recorder, self._settings, self._dice = recorder, settings, dice
        is_v1 = dice.random() < settings.v1_share
        self._producer = RecordedProducer(
            source,
            recorder,
            process,
            settings,
            transactional_id=name,
            is_v1=is_v1,
            compression=dice.choice(COMPRESSIONS),
        )
        self._consumer = RecordedConsumer(source, recorder, process, settings)
        self._has_assignment = False
        self._last_amount = 0

    @property
    def is_over(self) -> bool:
        return self._producer.is_over

    async def open(self) -> None:
        await self._producer.initialize()

    async def work(self) -> None:
        if not self._has_assignment:
            accounts = [(BANK, p) for p in range(self._settings.bank_partitions)]
            await self._consumer.assign_near_end(accounts, self._dice)
            self._has_assignment = True
        self._consumer.begin()
        await self._transact()
        await pause(self._settings.pause_ms, self._dice)

    async def close(self) -> None:
        await ending(self._producer.close(), self._consumer.close())

    async def _transact(self) -> None:
        producer = self._producer
        transaction = await producer.begin()
        problem: KafkaError | None = None
        try:
            for record in await self._consumer.poll(self._settings.poll_ms, 100, transaction):
                self._last_amount = abs((leg_of(record.value) or (0, 0))[1])
            await self._transfer(transaction.number)
        except KafkaError as caught:
            problem = caught
        is_aborted = problem is None and self._dice.random() < self._settings.abort_share
        if await producer.end(problem, is_aborted=is_aborted) is not Outcome.OK:
            self._consumer.rewind()

    async def _transfer(self, number: int) -> None:
        dice, count = self._dice, self._settings.bank_partitions
        giver, *takers = dice.sample(range(count), dice.randint(2, count))
        amount = (self._last_amount + dice.randint(1, AMOUNT_MAX)) % AMOUNT_MAX + 1
        await self._write(giver, number, -amount * len(takers))
        for taker in takers:
            await self._write(taker, number, amount)

    async def _write(self, account: int, transfer: int, amount: int) -> None:
        value = self._recorder.new_value()
        await self._producer.send(BANK, account, value, leg(value, transfer, amount))
