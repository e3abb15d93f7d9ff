"""The load of small sequential transactions that the page starts."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from ...client.admin import Admin
from ...client.producer import Producer
from ...wire.errors import KafkaError, TopicAlreadyExists

TOPIC, TRANSACTIONAL_ID = "oncelog-load", "oncelog-load"
PARTITIONS, RECORDS = 3, 10
FOR_S, PAUSE_S = 60.0, 0.05


class Load:
    """A load by a producer that commits small transactions for a minute, or until `close`.

    At most one load runs at a time.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._task: asyncio.Task[None] | None = None
        self._began_s = 0.0
        self._committed = self._aborted = 0
        self._problem = ""

    @property
    def words(self) -> str:
        """Return a sentence about the running or last load, or "" before the first `begin`."""
        if self._task is None:
            return ""
        done = f"{self._committed} transactions committed, {self._aborted} aborted"
        if not self._task.done():
            return f"Has written for {time.monotonic() - self._began_s:.0f} s: {done}."
        return f"Over: {done}.{self._problem}"

    def begin(self) -> str:
        """Start a load unless one is running. Return a sentence about the running load."""
        if self._task is not None and not self._task.done():
            return self.words
        self._began_s = time.monotonic()
        self._committed, self._aborted, self._problem = 0, 0, ""
        self._task = asyncio.create_task(self._run())
        return f"A load began: it writes to {TOPIC} for {FOR_S:.0f} s."

    async def close(self) -> None:
        """End the load, if one is running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with Admin(self._config) as admin:
                with contextlib.suppress(TopicAlreadyExists):
                    await admin.create_topic(TOPIC, partitions=PARTITIONS)
            async with Producer({**self._config, "transactional.id": TRANSACTIONAL_ID}) as producer:
                await producer.init_transactions()
                while time.monotonic() - self._began_s < FOR_S:
                    await self._transact(producer)
                    await asyncio.sleep(PAUSE_S)
        except KafkaError as problem:
            self._problem = f" It ended early: {problem}"

    async def _transact(self, producer: Producer) -> None:
        await producer.begin_transaction()
        try:
            for number in range(RECORDS):
                await producer.send(TOPIC, b"record %d" % number, partition=number % PARTITIONS)
            await producer.commit_transaction()
            self._committed += 1
        except KafkaError:
            await producer.abort_transaction()
            self._aborted += 1
