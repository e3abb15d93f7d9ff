"""The check-back, which ends transactions of dual writes that have been open for long.

    async with Admin("127.0.0.1:9092") as admin:
        check_back = CheckBack(admin.view, DatabaseResolver(connect), older_than_ms=30_000)
        await check_back.run()      # for ever; or `await check_back.sweep()` once

A resolver (resolvers.py) knows whether to commit or abort. Any number of check-backs may run beside
the writers. check_back_task.py runs a check-back in a service, and check_back.py has the protocol.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...wire.errors import InvalidConfig, KafkaError
from ..cluster_view import ClusterView
from ..transaction_admin import DescribedTransaction, TransactionAdmin
from . import kafka_side, steps
from .check_back import check_back
from .names import PREFIX, checked_name, writer_of
from .resolvers import Resolver
from .steps import DecidedOutcome, TransactionKey

logger = logging.getLogger(__name__)
OLDER_THAN_MS, EVERY_MS = 30_000, 1_000
ASK_AGAIN_FIRST_MS, ASK_AGAIN_LAST_MS = 1_000, 60_000
END_TIMEOUT_MS = 15_000
RESOLVE_TIMEOUT_S = 30.0  # for a resolver that hangs
AT_ONCE_MAX = 16  # questions, so that one that hangs does not delay the others


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check-back for one transaction.

    `outcome` is None if it is still unknown, and `reason` says why. `is_ours` means that this
    check-back has ended the transaction.
    """

    key: TransactionKey
    age_ms: int
    outcome: DecidedOutcome | None
    is_ours: bool = False
    reason: str = ""

    def in_words(self) -> str:
        """Return a sentence about this result."""
        age = f"{self.key}, open for {self.age_ms / 1000:.1f} s"
        if self.outcome is None:
            return f"{age}: not known yet: {self.reason}"
        return f"{age}: {self.outcome.value}" + ("" if self.is_ours else " (ended by others)")


@dataclass(slots=True)
class _Postponed:
    """The time at which a transaction with an unknown outcome is checked again."""

    until: float
    pause_ms: int = ASK_AGAIN_FIRST_MS


class CheckBack:
    """A check-back of the dual writes in the cluster of `view`. The caller closes view and
    resolver.
    """

    def __init__(
        self,
        view: ClusterView,
        resolver: Resolver,
        *,
        older_than_ms: int = OLDER_THAN_MS,
        writer: str | None = None,
        resolve_timeout_s: float = RESOLVE_TIMEOUT_S,
    ) -> None:
        """Create a check-back. With `writer` only that writer's transactions are checked."""
        self._view, self._resolver, self._writer = view, resolver, writer
        self._prefix = PREFIX if writer is None else f"{PREFIX}{checked_name(writer)}."
        self._older_than_ms, self._resolve_timeout_s = older_than_ms, resolve_timeout_s
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._admin = TransactionAdmin(view)
        self._postponed: dict[TransactionKey, _Postponed] = {}

    async def check(self) -> str:
        """Send a test request to the resolver and the cluster.

        Return a warning, or an empty string.

        Raises InvalidConfig if the resolver cannot answer, and errors of the cluster that are not
        retriable. A cluster that cannot be reached is not an error here, because `run` tries again.
        """
        try:
            async with asyncio.timeout(self._resolve_timeout_s):
                # resolvers of older releases have none
                ask = getattr(self._resolver, "check", None)
                doubt = await ask() if ask is not None else ""
        except TimeoutError:
            said = f"the resolver did not answer within {self._resolve_timeout_s:g} s"
            raise InvalidConfig(said) from None
        try:
            await self._view.any_broker()
        except KafkaError as problem:
            if not problem.retriable:
                raise
            logger.warning("check-back: a request to the cluster failed: %s", problem)
        return doubt

    async def run(
        self, *, every_ms: int = EVERY_MS, report: Callable[[Checked], object] | None = None
    ) -> None:
        """Call `sweep` every `every_ms` until cancelled.

        Failures are logged, and the next sweep follows.
        """
        while True:
            try:
                for each in await self.sweep():
                    (report or _log)(each)
            except KafkaError as problem:
                logger.warning("check-back: a request to the cluster failed: %s", problem)
            except Exception:  # readers wait for the next sweep, whatever failed
                logger.exception("check-back: the check of the open transactions failed")
            await asyncio.sleep(every_ms / 1000)

    async def sweep(self) -> list[Checked]:
        """Check all transactions that are open for long enough and not postponed.

        Return the results.
        """
        listed = await self._admin.list_transactions(
            prefix=self._prefix, states=["Ongoing"], needs_all_brokers=False
        )
        described = (await self._admin.describe_listed(listed)).values()
        opened = {_key(each): each for each in described if self._is_meant(each)}
        self._postponed = {k: each for k, each in self._postponed.items() if k in opened}
        now_ms = time.time_ns() // 1_000_000
        checks: list[Coroutine[Any, Any, Checked]] = []
        for key, transaction in sorted(opened.items()):
            age_ms = now_ms - transaction.start_ms
            postponed = self._postponed.get(key)
            is_due = postponed is None or time.monotonic() >= postponed.until
            if transaction.start_ms >= 0 and age_ms >= self._older_than_ms and is_due:
                checks.append(self._check(key, age_ms))
        return await asyncio.gather(*checks)

    def _is_meant(self, each: DescribedTransaction) -> bool:
        if each.state != "Ongoing":
            return False
        return self._writer is None or writer_of(each.transactional_id) == self._writer

    async def _check(self, key: TransactionKey, age_ms: int) -> Checked:
        async with self._at_once:
            return await self._check_now(key, age_ms)

    async def _check_now(self, key: TransactionKey, age_ms: int) -> Checked:
        effects, reason = check_back(key), "the resolver says so"
        effect = next(effects)
        while True:
            match effect:
                case steps.ReadOrAbort():
                    try:
                        async with asyncio.timeout(self._resolve_timeout_s):
                            event = steps.OutcomeRead(await self._resolver.resolve(key))
                    # any error of a database or HTTP: it is asked again
                    except Exception as problem:
                        said = str(problem) or type(problem).__name__
                        event, reason = steps.OutcomeRead(None), f"the resolver failed: {said}"
                case steps.EndAsDecided(_, is_commit):
                    try:
                        event = await kafka_side.end(
                            self._view, key, is_commit=is_commit, timeout_ms=END_TIMEOUT_MS
                        )
                    except KafkaError as problem:  # perhaps an ACL is missing for this id
                        event = steps.EndUnanswered(problem)
                    if isinstance(event, steps.EndUnanswered):
                        reason = f"its coordinator did not end it: {event.reason}"
                case steps.CheckedBack(_, outcome, is_ours):
                    self._postponed.pop(key, None)
                    return Checked(key, age_ms, outcome, is_ours)
                case _:
                    self._postpone(key)
                    return Checked(key, age_ms, None, reason=reason)
            effect = effects.send(event)

    def _postpone(self, key: TransactionKey) -> None:
        known = self._postponed.setdefault(key, _Postponed(0.0))
        known.until = time.monotonic() + known.pause_ms / 1000
        known.pause_ms = min(2 * known.pause_ms, ASK_AGAIN_LAST_MS)


def _key(each: DescribedTransaction) -> TransactionKey:
    return TransactionKey(each.transactional_id, each.producer_id, each.producer_epoch)


def _log(checked: Checked) -> None:
    level = logging.WARNING if checked.outcome is None else logging.INFO
    logger.log(level, "check-back of a transaction: %s", checked.in_words())
