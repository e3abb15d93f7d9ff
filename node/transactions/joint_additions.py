"""Joint additions of partitions, which are written in one Raft command.

A transactional id has one write in flight at a time. The additions to one id in a turn of the event
loop are joined into one write at the end of the turn. Additions during a write wait for its end,
and are then joined into the next write. The rules of coordinator/transactions/additions.py give the
answer to each addition.

The number of requests that wait in a shard is limited. The first of several joined additions does
not count towards the limit, the others do.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...coordinator.transactions.additions import Addition, Limit, add_jointly
from ...coordinator.transactions.decisions import DecisionContext, Granted, Refused
from ...coordinator.transactions.record import TransactionRecord
from ...wire.errors import ErrorCode
from .pending_transactions import HELD_PER_ID_MAX, JoinedAddition, PendingTransactions

Looked = tuple[TransactionRecord | None, DecisionContext]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionPorts:
    """The callbacks of an addition.

    look: returns the current state that decides an addition, or None when the term has ended.
    write: begins a write. The ports are passed with each addition, because stored ports would be a
    reference cycle with the leader of the shard.
    """

    look: Callable[[str], Looked | None]
    limit: Limit
    write: Callable[[str, TransactionRecord], asyncio.Future[ErrorCode]]


class JointAdditions:
    """The additions of partitions to transactions, joined by id, in one shard and one term."""

    def __init__(self, pending: PendingTransactions) -> None:
        self._pending = pending
        self._loop = asyncio.get_running_loop()

    async def add(
        self, transactional_id: str, addition: Addition, hold_ms: int, ports: AdditionPorts
    ) -> ErrorCode:
        """Return NONE when the partitions are durably in the transaction, else an error.

        Instead of CONCURRENT_TRANSACTIONS, an addition waits up to hold_ms for the end of the
        operation before it.
        """
        deadline_s = self._loop.time() + hold_ms / 1_000
        while (looked := ports.look(transactional_id)) is not None:
            record, context = looked
            match addition.judge(record, context):
                case Refused(ErrorCode.CONCURRENT_TRANSACTIONS as error):
                    if not await self._pending.hold(transactional_id, deadline_s):
                        return error
                case Refused(error):
                    return error
                case Granted():
                    return ErrorCode.NONE
                case None:
                    answer = await self._join(transactional_id, addition, ports)
                    if answer is not None:
                        return answer
        return ErrorCode.NOT_COORDINATOR

    async def _join(
        self, transactional_id: str, addition: Addition, ports: AdditionPorts
    ) -> ErrorCode | None:
        """Join an addition to the next write of the id, and return the answer of that write.

        Returns None if the state has changed, so that the addition must be decided again.
        """
        entry = self._pending.obtain(transactional_id)
        answer: asyncio.Future[ErrorCode | None] = self._loop.create_future()
        if entry.joined is None:
            entry.joined = [(addition, answer)]
            self._loop.call_soon(self._write, transactional_id, entry.joined, ports)
            return await answer
        if self._pending.is_full or len(entry.joined) >= HELD_PER_ID_MAX:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        entry.joined.append((addition, answer))
        return await self._pending.counted(answer)

    def _write(
        self, transactional_id: str, joined: list[JoinedAddition], ports: AdditionPorts
    ) -> None:
        # An addition that was cancelled in the meantime adds nothing.
        joined = [(addition, answer) for addition, answer in joined if not answer.done()]
        entry = self._pending.obtain(transactional_id)
        entry.joined = None
        try:
            looked = ports.look(transactional_id)
            if looked is None:
                for _, answer in joined:
                    answer.set_result(None)
            else:
                self._write_all(transactional_id, joined, looked, ports)
        except Exception as problem:  # otherwise the additions would wait forever
            for _, answer in joined:
                if not answer.done():
                    answer.set_exception(problem)
        if not entry.is_pending:
            entry.wake()
            self._pending.tidy(transactional_id)

    def _write_all(
        self,
        transactional_id: str,
        joined: list[JoinedAddition],
        looked: Looked,
        ports: AdditionPorts,
    ) -> None:
        record, context = looked
        new, answers = add_jointly(
            record, [addition for addition, _ in joined], context, ports.limit
        )
        waiting: list[asyncio.Future[ErrorCode | None]] = []
        for (addition, answer), known in zip(joined, answers, strict=True):
            if known is None:
                waiting.append(answer)
            elif isinstance(refusal := addition.judge(record, context), Refused):
                # The addition may wait for the operation before it.
                is_held = refusal.error == ErrorCode.CONCURRENT_TRANSACTIONS
                answer.set_result(None if is_held else known)
            else:  # granted, or refused by a limit
                answer.set_result(known)
        if new is None:
            return

        def written(outcome: "asyncio.Future[ErrorCode]") -> None:
            for answer in waiting:
                if not answer.done():
                    answer.set_result(outcome.result())

        ports.write(transactional_id, new).add_done_callback(written)
