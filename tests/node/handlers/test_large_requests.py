"""Test that the longest request of each API blocks the event loop no longer than a slice.

All APIs of the dispatch table are tested. Time is counted in lines of Python in one turn of the
loop, so the result is the same on any machine. With REQUEST_ELEMENTS_MAX elements, two lines for
each at 0.1 us are the 20 ms of the budget.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.coordinator.metadata import commands
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.api_table import served_apis
from oncelog.wire.messages import api_keys
from oncelog.wire.messages.apis import API_NAMES

from ...rounds import chosen, round_number
from ...size.connection import Connection
from ..counted_broker import CountedBroker
from ..counted_lines import LINES_A_SLICE
from .large_requests import LargeRequest, large_requests

ITEMS = 4_500
LINES_AT_ONCE_MAX = LINES_A_SLICE + 2 * ITEMS
TOPICS = 3  # to describe one with all its configs takes 2,000 lines
COMMAND_ITEMS = 24  # instead of 256, so that a command is as short as the slices here
APIS = served_apis(None)  # type: ignore[arg-type]


# Without an authorizer these requests are refused at once, or have no rights to check.
OF_AUTHORIZERS = (
    api_keys.DELETE_TOPICS,
    api_keys.OFFSET_COMMIT,
    api_keys.DESCRIBE_ACLS,
    api_keys.CREATE_ACLS,
    api_keys.DELETE_ACLS,
    api_keys.DESCRIBE_TRANSACTIONS,
    api_keys.CONSUMER_GROUP_DESCRIBE,
    api_keys.DESCRIBE_TOPIC_PARTITIONS,
)
# The assignments of one topic's partitions are one command, of at most 10,000: 20 ms.
BOUNDED = {"topics.assignments"}


class Served(CountedBroker):
    def too_long(self, request: LargeRequest) -> list[tuple[str, int]]:
        """Return the busiest functions of the longest turn if it was too long, else none."""
        return self.runner.run(self._too_long(request))

    async def _too_long(self, request: LargeRequest) -> list[tuple[str, int]]:
        loop = asyncio.get_running_loop()
        asking = loop.run_in_executor(None, _ask, self.broker.server.port, request)
        with self.lines.counted():
            await asking
        return self.lines.busiest if self.lines.longest > LINES_AT_ONCE_MAX else []


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
        served = Served(
            tmp_path_factory.mktemp("large"), topics=TOPICS, partitions=2, unknown_topics=ITEMS
        )
        yield served
        served.stop()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "ITEMS_MAX", COMMAND_ITEMS)
        root = tmp_path_factory.mktemp("secured")
        secured = Served(root, topics=3, partitions=2, unknown_topics=ITEMS, settings=settings)
        yield secured
        secured.stop()


def _versions() -> Iterator[Any]:
    """Yield the newest version of a third of the APIs, another third in each build.

    With the mark `soak` all APIs are tested in their newest and oldest version, which
    have different encodings.
    """
    now = chosen(round_number(), -(-len(APIS) // 3), APIS)
    for api in APIS:
        for version in sorted({api.min_version, api.max_version}):
            marks = [] if version == api.max_version and api in now else [pytest.mark.soak]
            yield pytest.param(api.key, version, id=f"{API_NAMES[api.key]}-{version}", marks=marks)


@pytest.mark.in_turn
@pytest.mark.parametrize(("key", "version"), _versions())
def test_large_request_of_any_api_leaves_the_event_loop_free(
    served: Served, key: int, version: int
) -> None:
    found: dict[str, list[tuple[str, int]]] = {}
    for request in large_requests(key, version, ITEMS, served.names):
        if request.array not in BOUNDED and (busiest := served.too_long(request)):
            found[request.array] = busiest
    assert found == {}


@pytest.mark.in_turn
@pytest.mark.parametrize("key", OF_AUTHORIZERS)
def test_large_request_with_an_authorizer_leaves_the_event_loop_free(
    secured: Served, key: int
) -> None:
    version = next(api.max_version for api in APIS if api.key == key)
    for request in large_requests(key, version, ITEMS, secured.names):
        assert secured.too_long(request) == [], request.array
