"""Measures for how long readers of committed data make no progress."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from ....deploy.cluster.blocking_admin import blocking_admin
from ....deploy.cluster.ends.flag import Flag
from ....wire.errors import KafkaError
from .judge import ReaderWait

LATEST = -1
EVERY_S = 0.2
WAITS_MAX = 100_000


class ReaderWatch(threading.Thread):
    """A thread that records waits, in which an LSO below the high watermark makes no progress.

    Waits below `shortest_s` are left out. An unknown offset counts as unchanged, so a wait
    continues.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, partitions: int, shortest_s: float
    ) -> None:
        super().__init__(daemon=True)
        self._config, self._shortest_s = config, shortest_s
        self._partitions = [(topic, partition) for partition in range(partitions)]
        self._over = Flag()
        self._stands: dict[int, tuple[int, float]] = {}  # partition -> where, since when
        self.waits: list[ReaderWait] = []
        self._problem: Exception | None = None

    def run(self) -> None:
        try:
            self._watch()
        except Exception as problem:
            self._problem = problem

    def _watch(self) -> None:
        with blocking_admin(self._config) as admin:
            while not self._over.wait(EVERY_S):
                try:
                    stable, high = admin.run(self._ask)
                except (KafkaError, OSError):
                    continue
                self.look(stable, high, time.monotonic())

    async def _ask(self, admin: Any) -> tuple[dict[Any, int], dict[Any, int]]:
        asked = dict.fromkeys(self._partitions, LATEST)
        stable = await admin.list_offsets(asked, read_committed=True)
        return stable, await admin.list_offsets(asked)

    def look(self, stable: dict[Any, int], high: dict[Any, int], now: float) -> None:
        """Add the LSO and high watermark of the partitions at one moment."""
        for key in self._partitions:
            partition, at = key[1], stable[key]
            stood = self._stands.get(partition)
            if stood is not None and (stood[0] != at or at >= high[key]):
                del self._stands[partition]
                if now - stood[1] >= self._shortest_s and len(self.waits) < WAITS_MAX:
                    self.waits.append(ReaderWait(partition, stood[1], now))
            if at < high[key]:
                self._stands.setdefault(partition, (at, now))

    def end(self) -> list[ReaderWait]:
        """Return the waits, including a current wait, or raise the error that ended the watch."""
        self._over.set()
        if self.is_alive():  # else it was not started, or has ended
            self.join()
        if self._problem is not None:
            raise self._problem
        now = time.monotonic()
        return self.waits + [ReaderWait(p, since, now) for p, (_, since) in self._stands.items()]
