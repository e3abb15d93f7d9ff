"""Test that short requests of many clients at once are handled in many turns of the loop.

In one turn of the loop the requests of all clients become readable. Each is as long as a request
that is handled at once may be. One append completes many waiting fetches, and one write of the
journal commits many commands. Time is counted in lines, as in test_large_requests.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import BODY_AT_ONCE_BYTES_MAX
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import fetch as fetch_messages
from oncelog.wire.messages import produce as produce_messages
from oncelog.wire.messages.apis import API_NAMES
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ..awaiting import until
from .counted_broker import CountedBroker
from .handlers.large_requests import LargeRequest, Names, large_requests

CLIENTS = 12
READERS, PARTITIONS = 300, 10
LINES_A_SLICE = 40_000  # at 0.1 us the 4 ms that requests may take of a turn
LINES_MAX = 5 * LINES_A_SLICE
FETCH_VERSION, PRODUCE_VERSION = 12, 9
ONE_OF_EACH_WAY = {"Fetch", "SyncGroup", "OffsetCommit", "DeleteTopics"}
ITEMS = (4_500, 2_000, 1_000, 700, 500, 350, 200, 100, 50)
PRODUCE, FETCH = 0, 1
PARTITIONS_MAX = 100  # of a produce that is appended at once
APIS = served_apis(None)  # type: ignore[arg-type]


class Served(CountedBroker):
    @asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[list[socket.socket]]:
        address = ("127.0.0.1", self.broker.server.port)
        clients: list[socket.socket] = []
        for _ in range(count):
            clients.append(socket.create_connection(address, timeout=60))
            await asyncio.sleep(0)
        server = self.broker.server
        await until(lambda: server.connection_count == count)
        try:
            yield clients
        finally:
            for client in clients:
                client.close()
        await until(lambda: not server.connection_count)

    async def too_long(self, clients: list[socket.socket]) -> list[tuple[str, int]]:
        """Await all answers, and return the busiest functions of a turn that was too long."""
        with self.lines.counted():
            await asyncio.get_running_loop().run_in_executor(None, _receive, clients)
        return self.lines.busiest if self.lines.longest > LINES_MAX else []


def _frame(key: int, version: int, body: bytes) -> bytes:
    request = encode_request_header(key, version, 1, "test") + body
    return len(request).to_bytes(4, "big") + request


def _receive(clients: list[socket.socket]) -> None:
    for client in clients:
        with client.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            assert len(stream.read(size)) == size


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(
        tmp_path_factory.mktemp("turns"),
        topics=3,
        partitions=PARTITIONS,
        unknown_topics=ITEMS[0],
        lines_a_slice=LINES_A_SLICE,
    )
    yield served
    served.stop()


def _longest_at_once(key: int, version: int, names: Names) -> dict[str, LargeRequest]:
    """Return the longest request that is handled at once, for each of the API's arrays."""
    found: dict[str, LargeRequest] = {}
    for items in ITEMS:
        for request in large_requests(key, version, items, names):
            is_short = len(request.body) <= BODY_AT_ONCE_BYTES_MAX
            if is_short and (key != PRODUCE or items <= PARTITIONS_MAX):
                found.setdefault(request.array, request)
    return found


def _apis() -> Iterator[Any]:
    """Yield one API of each kind, and the others with the mark `soak`."""
    for api in APIS:
        marks = [] if API_NAMES[api.key] in ONE_OF_EACH_WAY else [pytest.mark.soak]
        yield pytest.param(api, id=API_NAMES[api.key], marks=marks)


@pytest.mark.parametrize("api", _apis())
def test_requests_of_many_clients_are_handled_over_many_loop_turns(
    served: Served, api: Any
) -> None:
    async def test() -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        for array, request in _longest_at_once(api.key, api.max_version, served.names).items():
            async with served.clients(CLIENTS) as clients:
                for client in clients:
                    client.sendall(_frame(api.key, api.max_version, request.body))
                if busiest := await served.too_long(clients):
                    found[array] = busiest
        return found

    assert served.runner.run(test()) == {}


@pytest.mark.parametrize("name", ["DeleteTopics", "ElectLeaders"])
def test_commands_that_one_write_commits_are_answered_over_many_loop_turns(
    served: Served, name: str
) -> None:
    """Each client sends a long command, and all commands are in the same write of the journal."""
    (api,) = [api for api in APIS if API_NAMES[api.key] == name]
    requests = _longest_at_once(api.key, api.max_version, served.names).values()
    request = max(requests, key=lambda request: len(request.body))
    broker = served.broker

    async def test() -> list[tuple[str, int]]:
        async with served.clients(CLIENTS) as clients:
            broker.journal.hold()
            try:
                for client in clients:
                    client.sendall(_frame(api.key, api.max_version, request.body))
                await until(lambda: len(broker.metadata_group._proposals) >= CLIENTS)
            finally:
                broker.journal.release()
            return await served.too_long(clients)

    assert served.runner.run(test()) == []


def test_append_that_completes_many_fetches_takes_many_loop_turns(served: Served) -> None:
    record = encode_batch([Record(0, 0, None, b"value")])
    appended = ProduceRequest(
        None, 1, 1_000, [ProduceTopic("topic-0", None, [ProducePartition(0, record)])]
    )

    async def test() -> list[tuple[str, int]]:
        logs = (served.broker.replicas.partition("topic-0", i).log for i in range(PARTITIONS))
        ends = [FetchPartition(i, log.log_end_offset, 1 << 20) for i, log in enumerate(logs)]
        waiting = FetchRequest(20_000, 1, [FetchTopic("topic-0", None, ends)])
        async with served.clients(READERS + 1) as (writer, *readers):
            for reader in readers:
                body = b"".join(fetch_messages.encode_request(waiting, FETCH_VERSION))
                reader.sendall(_frame(FETCH, FETCH_VERSION, body))
            purgatory = served.broker.replicas.purgatory
            await until(lambda: purgatory.waiting_count == READERS)
            body = b"".join(produce_messages.encode_request(appended, PRODUCE_VERSION))
            writer.sendall(_frame(PRODUCE, PRODUCE_VERSION, body))
            busiest = await served.too_long([writer, *readers])
            assert not purgatory.waiting_count
            return busiest

    assert served.runner.run(test()) == []
