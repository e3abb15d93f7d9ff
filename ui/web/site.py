"""The data and permissions that all HTTP handlers of a page share."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..facts import ClusterFacts
from ..observer import Observer
from ..pages.frame import PageFrame
from .access import PageAccess

FIRST_FACTS_S = 2.0  # how long the first answer waits for them
FIRST_VIEW_S = 0.6  # the first page waits as long; it names missing parts, and is completed later
PARTS = ("cluster", "offsets", "log starts", "transactions", "groups")
Change = Callable[[Mapping[str, str]], Awaitable[str]]  # sentences by the fields of a form


def now_ms() -> int:
    """Return the wall-clock time in ms."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True, kw_only=True)
class Site:
    """The data and permissions that the HTTP handlers of one cluster's page share.

    abort: a function that aborts a transaction, or None without --allow-writes. fault: a function
    that injects a fault or starts a load, or None with --read-only and for a cluster that is not on
    this machine.
    """

    observer: Observer
    access: PageAccess
    cluster_name: str
    abort: Change | None = None
    fault: Change | None = None
    load_words: Callable[[], str] = str
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    started_ms: int = field(default_factory=now_ms)
    streams: int = 0

    @property
    def facts(self) -> ClusterFacts:
        """Return the currently known facts."""
        return self.observer.facts

    async def first_facts(self, within_s: float = FIRST_FACTS_S) -> ClusterFacts:
        """Return the facts. If a part is still missing, first wait for it, at most `within_s`."""
        end_s = time.monotonic() + within_s
        while (left_s := end_s - time.monotonic()) > 0 and self._not_told():
            await self.observer.changed(left_s)
        return self.facts

    def _not_told(self) -> list[str]:
        known = self.facts
        told = known.as_of_ms.keys() | known.silent.keys() | known.not_exposed.keys()
        return [part for part in PARTS if part not in told]

    def end(self) -> None:
        """End all event streams and waiting calls of `pause`, before the process ends."""
        self.closing.set()
        self.observer.tell()

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, but return as soon as `end` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.closing.wait()

    def frame(
        self, address: str, document: Mapping[str, Any], parts: tuple[str, ...], **others: Any
    ) -> PageFrame:
        """Return the frame of the view at `address`, which shows `document`.

        It reports which of the `parts` are missing, failed at the last request, or are refused.
        """
        facts = self.facts
        silent = {**facts.silent, **dict.fromkeys(self._not_told(), "not answered yet")}
        return PageFrame(
            address=address,
            cluster_name=self.cluster_name,
            now_ms=now_ms(),
            as_of_ms=document["as_of_ms"],
            can_write=self.abort is not None,
            has_faults=self.fault is not None,
            not_exposed=[s for part, s in facts.not_exposed.items() if part in parts],
            silent={part: why for part, why in silent.items() if part in parts},
            **others,
        )
