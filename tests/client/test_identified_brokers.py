"""Test that ApiVersions requests name the intended broker if brokers check it (KIP-1242)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.client.cluster_view import ClusterView
from oncelog.client.failures import AnotherBroker
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import decode_request_header, encode_response_header
from oncelog.wire.messages import control

API_VERSIONS, METADATA = 18, 3
NEWEST_METADATA = 12


class Node:
    """A broker that answers ApiVersions and Metadata.

    `asked` has the version, cluster id and broker id of each ApiVersions request.
    """

    def __init__(self, node_id: int, cluster_id: str, newest: int) -> None:
        self.node_id, self.cluster_id, self.newest = node_id, cluster_id, newest
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[None]] = []
        self.known: list[Node] = [self]
        self.asked: list[tuple[int, str | None, int]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Node"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                header = decode_request_header(memoryview(frame))
                version = header.api_version
                request = control.decode_request(
                    header.api_key, version, memoryview(frame)[header.body_offset :]
                )
                values: Any = self._metadata()
                if header.api_key == API_VERSIONS:
                    cluster_id = getattr(request, "cluster_id", None)
                    node_id = getattr(request, "node_id", -1)
                    self.asked.append((version, cluster_id, node_id))
                    values = self._versions(version, cluster_id, node_id)
                body = control.encode_response(header.api_key, version, values)
                head = encode_response_header(header.api_key, version, header.correlation_id)
                answer = bytes(head) + bytes(body)
                writer.write(len(answer).to_bytes(4) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _versions(self, version: int, cluster_id: str | None, node_id: int) -> dict[str, Any]:
        is_meant = (cluster_id, node_id) in ((None, -1), (self.cluster_id, self.node_id))
        if not is_meant:
            return {"error_code": ErrorCode.REBOOTSTRAP_REQUIRED}
        rows = ((METADATA, NEWEST_METADATA), (API_VERSIONS, self.newest))
        keys = [{"api_key": key, "min_version": 0, "max_version": last} for key, last in rows]
        return {"api_keys": keys}

    def _metadata(self) -> dict[str, Any]:
        brokers = [
            {"node_id": each.node_id, "host": "127.0.0.1", "port": each.port, "rack": None}
            for each in self.known
        ]
        return {
            "brokers": brokers,
            "cluster_id": self.cluster_id,
            "controller_id": 1,
            "topics": [],
        }


async def test_broker_with_a_known_id_is_asked_for_that_id_in_api_versions() -> None:
    async with Node(1, "c", 5).serving() as one, Node(2, "c", 5).serving() as two:
        one.known = [one, two]
        view = ClusterView(f"127.0.0.1:{one.port}")
        await view.refresh([])
        await view.broker(2)
        assert one.asked == [(3, None, -1)], "whom it asks first it does not know yet"
        assert two.asked == [(5, "c", 2)]
        await view.close()


async def test_broker_of_an_older_version_is_asked_without_an_id() -> None:
    async with Node(1, "c", 4).serving() as one, Node(2, "c", 4).serving() as two:
        one.known = [one, two]
        view = ClusterView(f"127.0.0.1:{one.port}")
        await view.refresh([])
        await view.broker(2)
        assert two.asked == [(3, None, -1)]
        await view.close()


@pytest.mark.parametrize(("node_id", "cluster_id"), [(3, "c"), (2, "another")])
async def test_broker_address_that_belongs_to_another_broker_makes_the_client_rebootstrap(
    node_id: int, cluster_id: str
) -> None:
    first = Node(1, "c", 5)
    async with first.serving() as one, Node(node_id, cluster_id, 5).serving() as other:
        former = Node(2, "c", 5)
        former.port = other.port
        one.known = [one, former]
        view = ClusterView(f"127.0.0.1:{one.port}")
        await view.refresh([])
        with pytest.raises(AnotherBroker, match="no longer broker 2 of cluster c"):
            await view.broker(2)
        assert other.asked == [(5, "c", 2)]
        one.known = [one]
        snapshot = await view.refresh([])
        assert list(snapshot.brokers) == [1]
        await view.close()
