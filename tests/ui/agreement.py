"""Compare a view in a browser with the answers that the brokers gave at the same time.

A view shows the time of its data. Each of its values must have been true at some moment between
that time and the time at which a test read the view. So the value must equal an answer that a
broker gave between the two times, the last answer before them, or the first answer after them. A
rising value may lie between two answers.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from oncelog.client.admin import LATEST, Admin
from oncelog.wire.errors import KafkaError

from ..awaiting import until
from .chromium import Browser

AGAIN_S, TOLD_S = 0.1, 60
READ = """
  const words = (e) => e.innerText.trim().replace(/\\s+/g, " ");
  const rows = (table) => {
    const names = [...table.tHead.rows[0].cells].map((e) => e.textContent);
    const row = (e) => Object.fromEntries([...e.cells].map((cell, at) => [names[at], words(cell)]));
    return [...table.tBodies[0].rows].map(row);
  };
  const pairs = (all, name) => Object.fromEntries([...all].map(name));
  return {
    as_of_ms: Number(document.getElementById("age").dataset.asOfMs || 0),
    read_ms: Date.now(),
    tables: pairs(document.querySelectorAll("table"), (e) => [e.caption.textContent, rows(e)]),
    facts: pairs(document.querySelectorAll(".facts div"), (e) => [...e.children].map(words)),
    words: document.body.innerText,
  };
"""
Rows = list[dict[str, str]]


class Shown(NamedTuple):
    """A view as the browser shows it, with its tables by caption and its facts by name."""

    as_of_ms: int
    read_ms: int
    tables: Mapping[str, Rows]
    facts: Mapping[str, str]
    words: str

    def rows(self, caption: str, name: str) -> dict[str, dict[str, str]]:
        """Return the rows of a table by their cell in column `name`, or {} without the table."""
        return {row[name]: row for row in self.tables.get(caption, ())}


class Sample(NamedTuple):
    """An answer of a broker, and when the request for it was sent and answered."""

    began_ms: int
    ended_ms: int
    value: Any


def read(chrome: Browser, address: str, shows: Callable[[Shown], Any] | None = None) -> Shown:
    """Open a view, wait until it has data and `shows` is true for it, and return its contents."""
    chrome.go(address)
    found: list[Shown] = []

    def holds() -> Any:
        found.append(Shown(**chrome.driver.execute_script(READ)))
        return found[-1].as_of_ms and (shows is None or shows(found[-1]))

    chrome.wait(holds)
    return found[-1]


@dataclass(slots=True)
class Told:
    """The answers of the brokers to repeated requests of an admin client, by part."""

    admin: Admin
    samples: dict[str, list[Sample]] = field(default_factory=dict[str, list[Sample]])

    async def keep(self, part: str, ask: Callable[[], Awaitable[Any]]) -> None:
        samples = self.samples[part] = []
        while True:
            began_ms = now_ms()
            with suppress(KafkaError):
                value = await ask()
                samples.append(Sample(began_ms, now_ms(), value))
            await asyncio.sleep(AGAIN_S)

    async def beside(self, shown: Shown) -> "Beside":
        """Wait until each part was requested and answered after `shown` was read.

        Return the view with the answers.
        """
        later = lambda: all(s and s[-1].began_ms >= shown.read_ms for s in self.samples.values())  # noqa: E731
        await until(later, TOLD_S)
        return Beside(self, shown)

    # --- answers of the admin client

    async def cluster(self) -> dict[str, Any]:
        described = await self.admin.describe_cluster()
        found = {(p.topic, p.partition): p for p in await self.admin.describe_topics()}
        fenced = {each.node_id for each in described.brokers if each.is_fenced}
        return {
            "controller": await self.admin.controller(),
            "fenced": fenced,
            "partitions": found,
            "led": Counter(each.leader for each in found.values()),
        }

    async def offsets(self) -> dict[str, Any]:
        keys = [(p.topic, p.partition) for p in await self.admin.describe_topics()]
        ends = await self.admin.list_offsets(dict.fromkeys(keys, LATEST))
        stable = await self.admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        return {"ends": ends, "stable": stable}

    async def transactions(self) -> dict[str, Any]:
        listed = await self.admin.transactions.list_transactions()
        return dict(await self.admin.transactions.describe_listed(listed))

    async def groups(self) -> dict[str, Any]:
        listed = await self.admin.groups.list_groups()
        return dict(await self.admin.groups.describe_listed(listed))


@asynccontextmanager
async def telling(bootstrap: str) -> AsyncIterator[Told]:
    """Request the state of the cluster repeatedly until the block ends, and yield the answers."""
    async with Admin({"bootstrap.servers": bootstrap, "request.timeout.ms": 2_000}) as admin:
        told = Told(admin)
        parts = {
            "cluster": told.cluster,
            "offsets": told.offsets,
            "transactions": told.transactions,
            "groups": told.groups,
        }
        tasks = [asyncio.create_task(told.keep(part, ask)) for part, ask in parts.items()]
        try:
            await until(lambda: len(told.samples) == len(parts) and all(told.samples.values()))
            yield told
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Beside:
    """A view, and the brokers' answers around the times of its data and of its reading."""

    told: Told
    shown: Shown

    def was(self, part: str, pick: Callable[[Any], Any], said: Any) -> None:
        """Assert that the shown value `said` equals what `pick` returns for one of the answers."""
        found = self._told(part, pick)
        assert said in found, f"{said!r} was never told, but {found}: {self._when()}"

    def rises(self, part: str, pick: Callable[[Any], int], said: str) -> None:
        """Assert that the shown number `said` is between the first and the last of the answers.

        `pick` returns the number in an answer, which only rises.
        """
        found = self._told(part, pick)
        value = number(said)
        assert found[0] <= value <= found[-1], f"{value} is not in {found}: {self._when()}"

    def _when(self) -> str:
        return (
            f"as of {self.shown.as_of_ms}, read at {self.shown.read_ms}: {self.shown.words[:200]}"
        )

    def _told(self, part: str, pick: Callable[[Any], Any]) -> list[Any]:
        samples = self.told.samples[part]
        first = sum(each.ended_ms <= self.shown.as_of_ms for each in samples) - 1
        last = next(i for i, each in enumerate(samples) if each.began_ms >= self.shown.read_ms)
        return [pick(each.value) for each in samples[max(0, first) : last + 1]]


def number(words: str) -> int:
    """Return the value of a number that a page shows, such as "1,024"."""
    return int(words.replace(",", ""))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
