"""The sink's requests about its children (the transactions of task attempts), and the answers.

This file translates answers into events of the protocol. A repeated EndTxn gets the same answer as
the first EndTxn. With transactions V2 a repetition is recognised by its epoch, one below that of
the id. Each child has its own epoch, with V1 too, so the answer describes the end of this child,
and of no other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, TypeVar

from ...client import Admin, PreparedTransaction
from ...client import complete as end_prepared
from ...client.transaction_admin import DescribedTransaction, TransactionAdmin
from ...wire.errors import ErrorCode, KafkaError, TransactionalIdNotFound
from . import steps
from .names import child_prefix, shown

log = logging.getLogger("oncelog.sink")

LIST_TIMEOUT_MS = 2_000
AT_ONCE = 32
END_TIMEOUT_MS = 60_000
EXPIRING_MS = 10_000  # or a tenth of the timeout
T = TypeVar("T")
OPEN, EXPIRING, ENDED, OTHER = "open", "expiring", "ended", "other"
FORGOTTEN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
ENDED_OTHERWISE = FENCED | {ErrorCode.INVALID_TXN_STATE}


class ChildRequests:
    """The requests of one sink about its children."""

    def __init__(self, admin: Admin, sink_id: str) -> None:
        self._admin, self._sink_id = admin, sink_id

    async def list_open(self) -> steps.OpenListed:
        """List the children with an open transaction.

        A broker that does not answer for a while is skipped. Its transactions move to another
        coordinator, or are found at the next batch.
        """
        wanted: dict[str, Any] = {"prefix": child_prefix(self._sink_id), "states": ["Ongoing"]}
        try:
            brief = TransactionAdmin(self._admin.view, timeout_ms=LIST_TIMEOUT_MS)
            found = await brief.list_transactions(**wanted)
        except KafkaError as problem:
            if not problem.retriable:
                raise
            log.info("sink %s: a broker does not list its transactions: %s", self._sink_id, problem)
            found = await self._admin.transactions.list_transactions(
                **wanted, needs_all_brokers=False
            )
        return steps.OpenListed(tuple(each.transactional_id for each in found))

    async def describe(self, children: Collection[PreparedTransaction]) -> steps.ChildrenDescribed:
        """Request the state of each child from its coordinator, with retries until it answers."""
        found: dict[str, str] = {}

        async def look(child: PreparedTransaction) -> None:
            name = child.transactional_id
            while True:
                try:
                    described = await self._admin.transactions.describe(name)
                except TransactionalIdNotFound:
                    found[name] = OTHER
                except KafkaError as problem:
                    if not problem.retriable:
                        raise
                    log.warning(
                        "sink %s: a request for the transaction of %s is retried: %s",
                        self._sink_id,
                        name,
                        problem,
                    )
                    continue
                else:
                    found[name] = standing(child, described, int(time.time() * 1000))
                return

        await _for_each(children, look)

        def those(*kinds: str) -> tuple[str, ...]:
            return tuple(name for name, kind in found.items() if kind in kinds)

        return steps.ChildrenDescribed(
            open=those(OPEN, EXPIRING), ended=those(ENDED), expiring=those(EXPIRING)
        )

    async def commit(
        self, children: Iterable[PreparedTransaction], *, times_out: bool = False
    ) -> steps.Event:
        """Commit the transactions of all children, with retries until each has an outcome.

        times_out: the transactions have a timeout, so an expired id may belong to an aborted
        transaction. Without a timeout an expired id belongs to a committed transaction.
        """
        refused = await self._end(children, commit=True)
        if not times_out:
            refused = {name: p for name, p in refused.items() if p.number != FORGOTTEN}
        return _outcome(refused) or steps.ChildrenCommitted()

    async def roll_back(self, children: Iterable[PreparedTransaction]) -> steps.Event:
        """Abort the transactions of all children, with retries until each has an outcome.

        The event has the names of children that were already committed, or whose ids have expired.
        """
        names = tuple(child.transactional_id for child in children)
        log.warning(
            "sink %s: transactions of a decided batch timed out before one was "
            "committed, so the others are aborted: %s",
            self._sink_id,
            shown(names) or "nothing more",
        )
        refused = await self._end(children, commit=False)
        # A timeout has fenced these meanwhile; for a commit the answer would be INVALID_TXN_STATE.
        refused = {name: p for name, p in refused.items() if p.number not in FENCED}
        return _outcome(refused) or steps.ChildrenAborted()

    async def abort(self, names: Iterable[str]) -> steps.Event:
        """Abort the open transactions of these ids with InitProducerId."""
        await _for_each(names, self._admin.transactions.end)
        return steps.ChildrenAborted()

    async def _end(
        self, children: Iterable[PreparedTransaction], *, commit: bool
    ) -> dict[str, KafkaError]:
        """Commit or abort each child. Return, by id, the errors of children that had ended
        otherwise, or whose ids have expired.
        """
        refused: dict[str, KafkaError] = {}

        async def end(child: PreparedTransaction) -> None:
            name = child.transactional_id
            while True:
                try:
                    await end_prepared(
                        self._admin.view, child, commit=commit, timeout_ms=END_TIMEOUT_MS
                    )
                except KafkaError as problem:
                    if problem.number == FORGOTTEN or problem.number in ENDED_OTHERWISE:
                        refused[name] = problem
                        return
                    if not problem.retriable:
                        raise
                    log.warning(
                        "sink %s: a request for the transaction of %s is retried: %s",
                        self._sink_id,
                        name,
                        problem,
                    )
                else:
                    return

        await _for_each(children, end)
        return refused


def _outcome(refused: dict[str, KafkaError]) -> steps.ChildrenRefused | None:
    if not refused:
        return None
    return steps.ChildrenRefused(
        tuple(sorted(refused)),
        "; ".join(sorted({_in_words(problem) for problem in refused.values()})),
        tuple(sorted(name for name, p in refused.items() if p.number == FORGOTTEN)),
    )


def _in_words(problem: KafkaError) -> str:
    if problem.number == FORGOTTEN:
        return "the id has expired, so nobody can tell how it was ended"
    return str(problem)


def standing(child: PreparedTransaction, found: DescribedTransaction, now_ms: int) -> str:
    """Return the state of a child's transaction, as its coordinator's description shows it.

    The state is OPEN, EXPIRING (about to time out), ENDED (aborted), or OTHER (committed, or
    unknown because the id has expired). now_ms: the wall-clock time.
    """
    if found.producer_id != child.producer_id:
        return OTHER  # its epochs were used up, by an end of either kind, or the id has expired
    raised = found.producer_epoch - child.producer_epoch
    if not raised and found.state == "Ongoing":
        left_ms = found.start_ms + found.timeout_ms - now_ms
        return EXPIRING if left_ms < min(EXPIRING_MS, found.timeout_ms // 10) else OPEN
    if found.state in ("PrepareCommit", "CompleteCommit") and raised == int(child.is_v2):
        return OTHER
    is_aborted = found.state in ("PrepareAbort", "CompleteAbort")
    return ENDED if raised > 0 or (is_aborted and raised == 0) else OTHER


async def _for_each(items: Iterable[T], end: Callable[[T], Awaitable[object]]) -> None:
    """Await `end(item)` for all items, AT_ONCE at a time. Then raise the first error, if any."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with gate:
            await end(item)

    for result in await asyncio.gather(*map(one, items), return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
