"""The workload bank, with transfers between partitions, each a transaction that reads and writes.

A partition is an account, and a record is one side of a transfer. A transfer takes from one account
and gives to others, and the amount depends on the records read before. The sum of all sides of all
transfers is zero. This invariant (`BankCheck`) fails if only a part of a transaction is visible, if
a record is doubled, or if an aborted record is read.
"""

from dataclasses import dataclass, field
from functools import partial

from ...judge.history.recorder import Begun
from .incarnations import LoadContext, WorkloadClient, one_after_another, pause
from .payloads import leg, leg_of
from .settings import BANK

EXAMPLES_MAX = 5


@dataclass(slots=True)
class BankCheck:
    """A check of the invariant on every record of the last reading of the topic, without I/O.

    Only transfers with a sum that is not yet zero are kept.
    """

    sides: int = 0
    total: int = 0
    _open: dict[int, int] = field(default_factory=dict[int, int])

    def saw(self, content: bytes | None) -> None:
        """Add one record of the bank's topic that a read_committed consumer got."""
        found = leg_of(content)
        if found is None:
            return
        transfer, amount = found
        self.sides += 1
        self.total += amount
        left = self._open.pop(transfer, 0) + amount
        if left:
            self._open[transfer] = left

    @property
    def is_balanced(self) -> bool:
        """Return whether the amounts of each transfer add up to zero."""
        return self.total == 0 and not self._open

    def words(self) -> str:
        """Return the result of the check as a sentence."""
        if self.is_balanced:
            return f"bank: {self.sides:,} sides of transfers, all in balance"
        examples = ", ".join(
            f"{t} by {left}" for t, left in list(self._open.items())[:EXAMPLES_MAX]
        )
        return (
            f"VIOLATION bank: the sum is {self.total}, {len(self._open):,} transfers are torn "
            f"or doubled: {examples}"
        )


AMOUNT_MAX = 1_000


async def bank(context: LoadContext, *, name: str) -> None:
    """Run clients that transfer, one after another until `stop()`.

    `name` is the transactional id.
    """
    await one_after_another(partial(_BankClient, context, name), context)


class _BankClient(WorkloadClient):
    _has_assignment = False
    _last_amount = 0

    async def work(self) -> None:
        if not self._has_assignment:
            accounts = [(BANK, p) for p in range(self._settings.bank_partitions)]
            await self._consumer.assign_near_end(accounts, self._rng)
            self._has_assignment = True
        self._consumer.begin()
        transaction = await self._producer.begin()
        await self._end_after(self._read_and_transfer(transaction))
        await pause(self._settings.pause_ms, self._rng)

    async def _read_and_transfer(self, transaction: Begun) -> None:
        for record in await self._consumer.poll(self._settings.poll_ms, 100, transaction):
            self._last_amount = abs((leg_of(record.value) or (0, 0))[1])
        await self._transfer(transaction.number)

    async def _transfer(self, number: int) -> None:
        rng, count = self._rng, self._settings.bank_partitions
        giver, *takers = rng.sample(range(count), rng.randint(2, count))
        amount = (self._last_amount + rng.randint(1, AMOUNT_MAX)) % AMOUNT_MAX + 1
        await self._write(giver, number, -amount * len(takers))
        for taker in takers:
            await self._write(taker, number, amount)

    async def _write(self, account: int, transfer: int, amount: int) -> None:
        value = self._recorder.new_value()
        await self._producer.send(BANK, account, value, leg(value, transfer, amount))
