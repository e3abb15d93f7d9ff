"""A broker for all tests of a module. It counts the lines of Python in each turn of its loop."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from oncelog.node.groups.shard import ShardState
from oncelog.node.handlers.metadata.auto_creation import OFFSETS_TOPIC

from ..awaiting import until
from .counted_lines import LINES_A_SLICE, CountingLoop, Lines
from .handlers.large_requests import Names
from .own_broker import OwnBroker

SETTINGS = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}


class CountedBroker:
    """A broker in an event loop that runs only while a test runs it."""

    def __init__(
        self,
        root: Path,
        *,
        topics: int,
        partitions: int,
        unknown_topics: int,
        lines_a_slice: int = LINES_A_SLICE,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.lines = Lines(lines_a_slice)
        self.runner = asyncio.Runner(loop_factory=lambda: CountingLoop(self.lines))
        names = [f"topic-{number}" for number in range(topics)]
        self.runner.run(self._start(root, names, partitions, settings))
        names += [f"unknown-{number}" for number in range(unknown_topics)]
        self.names = Names(names, [name.encode().ljust(16) for name in names])

    async def _start(
        self, root: Path, topics: list[str], partitions: int, settings: Mapping[str, str]
    ) -> None:
        all_settings = {**SETTINGS, **settings}
        self.broker = OwnBroker(root, slice_clock=self.lines.clock, settings=all_settings)
        await self.broker.start()
        for name in topics:
            await self.broker.create(name, partitions)
        await until(lambda: all(self.broker.serves(name, partitions) for name in topics))
        # Without this topic the requests of groups would only get NOT_COORDINATOR.
        await self.broker.create(OFFSETS_TOPIC, 1, topic_id=b"offsets".ljust(16))
        groups = self.broker.services.groups
        await until(lambda: [s.state for s in groups.shards] == [ShardState.SERVING])

    def stop(self) -> None:
        self.runner.run(self.broker.stop())
        self.runner.close()
