"""Additions of partitions that come together go together: one command of Raft for all of them.

Of one transactional id one write is under way at a time. The additions that meet in a turn of the
event loop become one write at its end; those that come during a write wait for it, are woken by
its end in one turn, and so meet in the next. Which answer each of them has is decided by the core
(coordinator/transactions/additions.py).

The first of those that meet waits for its own write; the others are requests that wait for
another's, so they count among what may be held, and take no more memory than that.
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
    """look: what an addition is judged by now; None when the term is over. write: begins one.

    Given with each addition: kept, the leader of a shard and they would hold each other for ever.
    """

    look: Callable[[str], Looked | None]
    limit: Limit
    write: Callable[[str, TransactionRecord], asyncio.Future[ErrorCode]]


class JointAdditions:
    """Of one shard in one term."""

    def __init__(self, pending: PendingTransactions) -> None:
        self._pending = pending
        self._loop = asyncio.get_running_loop()

    async def add(
        self, transactional_id: str, addition: Addition, hold_ms: int, ports: AdditionPorts
    ) -> ErrorCode:
        """NONE when the partitions are in the transaction, durably.

        What would be answered CONCURRENT_TRANSACTIONS waits for up to hold_ms until what is in its
        way is over.
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
        """Take part in the next write; None: ask again, something came between."""
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
        # Who was cancelled meanwhile adds nothing, as if it had been alone.
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
        except Exception as problem:  # they would wait for ever
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
                is_held = refusal.error == ErrorCode.CONCURRENT_TRANSACTIONS  # it may be, for it
                answer.set_result(None if is_held else known)
            else:  # granted, or beyond a limit
                answer.set_result(known)
        if new is None:
            return

        def written(outcome: "asyncio.Future[ErrorCode]") -> None:
            for answer in waiting:
                if not answer.done():
                    answer.set_result(outcome.result())

        ports.write(transactional_id, new).add_done_callback(written)
