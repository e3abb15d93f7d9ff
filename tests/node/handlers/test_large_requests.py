"""Every API that is served: its longest requests keep the loop for no more than a slice.

Driven by the table of APIs and by the schemas, so a new API is tested without a line here. Time is
counted in lines of Python that run in one turn of the loop, so it does not depend on the machine:
with REQUEST_ELEMENTS_MAX elements two lines for each, at 0.1 us, are the 20 ms of the budget.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata import commands
from oncelog.node.handlers.api_table import served_apis
from oncelog.wire.messages.apis import API_NAMES

from ...size.connection import Connection
from ..counted_lines import LINES_A_SLICE, CountingLoop, Lines
from ..own_broker import OwnBroker, until
from .large_requests import LargeRequest, Names, large_requests

ITEMS = 4_500
LINES_AT_ONCE_MAX = LINES_A_SLICE + 2 * ITEMS
TOPICS = 3  # one described with all its configs is 2,000 lines
COMMAND_ITEMS = 24  # of 256, so that one is as small as the slices here
APIS = served_apis(None)  # type: ignore[arg-type]


# Who assigns the partitions of one topic puts them into one command, of at most 10,000: 20 ms.
BOUNDED = {"topics.assignments"}


class Served:
    """One broker for all tests; it lives while one of them runs its loop."""

    def __init__(self, root: Path) -> None:
        self.lines = Lines()
        self.runner = asyncio.Runner(loop_factory=lambda: CountingLoop(self.lines))
        self.runner.run(self._start(root))

    async def _start(self, root: Path) -> None:
        self.broker = OwnBroker(
            root,
            slice_clock=self.lines.clock,
            settings={
                "auto.create.topics.enable": "false",
                "group.initial.rebalance.delay.ms": "0",
            },
        )
        await self.broker.start()
        names = [f"topic-{number}" for number in range(TOPICS)]
        for name in names:
            await self.broker.create(name)
        await until(lambda: all(self.broker.serves(name) for name in names))
        names += [f"unknown-{number}" for number in range(ITEMS)]
        self.names = Names(names, [name.encode().ljust(16) for name in names])

    def too_long(self, request: LargeRequest) -> list[tuple[str, int]]:
        """The busiest functions of the longest turn up to the answer, if it was too long."""
        return self.runner.run(self._too_long(request))

    async def _too_long(self, request: LargeRequest) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        asking = loop.run_in_executor(None, _ask, self.broker._server.port, request)
        with self.lines.counted():
            await asking
        return self.lines.busiest if self.lines.longest > LINES_AT_ONCE_MAX else []

    def stop(self) -> None:
        self.runner.run(self.broker.stop())
        self.runner.close()


def _ask(port: int, request: LargeRequest) -> int:
    connection = Connection(("127.0.0.1", port))
    try:
        connection.send(request.key, request.version, request.body)
        return len(connection.receive(request.key, request.version))
    finally:
        connection.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "ITEMS_MAX", COMMAND_ITEMS)
        served = Served(tmp_path_factory.mktemp("large"))
        yield served
        served.stop()


def _versions() -> Iterator[Any]:
    """The newest of each API; the oldest, coded in another way, where there is time for it."""
    for api in APIS:
        for version in sorted({api.min_version, api.max_version}):
            marks = [pytest.mark.soak] if version < api.max_version else []
            yield pytest.param(api.key, version, id=f"{API_NAMES[api.key]}-{version}", marks=marks)


@pytest.mark.parametrize(("key", "version"), _versions())
def test_no_request_keeps_the_loop(served: Served, key: int, version: int) -> None:
    found: dict[str, list[tuple[str, int]]] = {}
    for request in large_requests(key, version, ITEMS, served.names):
        if request.array not in BOUNDED and (busiest := served.too_long(request)):
            found[request.array] = busiest
    assert found == {}
