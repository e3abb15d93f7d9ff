"""Test the deadlines and the versions of requests with a transactional id."""

import asyncio
import time
from typing import Any

import pytest

from oncelog.client.cluster_view import ClusterView
from oncelog.client.connection import BrokerConnection
from oncelog.client.group_metadata import GroupMetadata, OffsetAndMetadata
from oncelog.client.retries import now_ms
from oncelog.client.transactions import requests as requests_module
from oncelog.client.transactions.requests import TransactionRequests
from oncelog.wire.errors import ErrorCode, GroupIdNotFound, RequestTimedOut
from oncelog.wire.messages import control


async def test_request_to_a_silent_coordinator_ends_at_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view, connection = ClusterView("127.0.0.1:1"), BrokerConnection("127.0.0.1", 1, "test", 10)
    asked: list[int] = []

    async def silent(api_key: int, *_: Any, **__: Any) -> Any:
        asked.append(api_key)
        await asyncio.sleep(30)

    async def find_coordinator(*_: Any) -> int:
        return 1

    async def broker(*_: Any) -> BrokerConnection:
        return connection

    monkeypatch.setattr(connection, "call", silent)
    monkeypatch.setattr(view, "broker", broker)
    monkeypatch.setattr(requests_module, "find_coordinator", find_coordinator)
    requests = TransactionRequests(view, "id", timeout_ms=30_000, backoff=(20, 500))
    begun = time.monotonic()
    with pytest.raises(RequestTimedOut, match="end transaction was not decided in time"):
        await requests.end((7, 0), now_ms() + 700, is_commit=True, is_v2=False)
    assert time.monotonic() - begun < 25  # of 30
    assert requests.lost_answers == requests.ends_sent == len(asked)


TXN_OFFSET_COMMIT, TOPIC_ID = 28, bytes(range(16))
OFFSETS = {("t", partition): OffsetAndMetadata(7) for partition in (0, 1)}
IDS = dict.fromkeys(OFFSETS, TOPIC_ID)


class Coordinator(BrokerConnection):
    """A connection that supports TxnOffsetCommit up to a version and records its requests."""

    def __init__(self, newest: int, code: int = 0) -> None:
        super().__init__("127.0.0.1", 1, "test", 10)
        self.versions = {TXN_OFFSET_COMMIT: (0, newest)}
        self.asked: list[tuple[int, Any]] = []
        self._code = code

    async def send(self, api_key: int, version: int, body: Any, **_: Any) -> memoryview:
        asked = control.decode_request(api_key, version, b"".join(body))
        self.asked.append((version, asked))
        named = {"topic_id": TOPIC_ID, "name": "t"}
        partitions = [{"partition_index": 0, "error_code": self._code}]
        answer = {"throttle_time": 0, "topics": [{**named, "partitions": partitions}]}
        return memoryview(control.encode_response(api_key, version, answer))


async def committed(
    monkeypatch: pytest.MonkeyPatch, connection: Coordinator, ids: Any, *, is_v2: bool
) -> tuple[int, Any]:
    """Commit an offset, and return the version of the request and the topic's name or id in it."""

    async def find_coordinator(*_: Any) -> int:
        return 1

    async def broker(*_: Any) -> BrokerConnection:
        return connection

    view = ClusterView("127.0.0.1:1")
    monkeypatch.setattr(view, "broker", broker)
    monkeypatch.setattr(requests_module, "find_coordinator", find_coordinator)
    requests = TransactionRequests(view, "id", timeout_ms=30_000, backoff=(20, 500))
    group = GroupMetadata("g", 3, "m", None, ids)
    await requests.commit_offsets((7, 0), group, OFFSETS, now_ms() + 5_000, is_v2=is_v2)
    ((version, asked),) = connection.asked
    (topic,) = asked.topics
    epoch = asked.generation_id_or_member_epoch if version >= 6 else asked.generation_id
    assert epoch == group.generation_id
    return version, topic.topic_id if version >= 6 else topic.name


@pytest.mark.parametrize(
    ("newest", "ids", "is_v2", "expected"),
    [
        (6, IDS, True, (6, TOPIC_ID)),
        (5, IDS, True, (5, "t")),
        (6, {("t", 0): TOPIC_ID}, True, (5, "t")),
        (6, {}, True, (5, "t")),
        (6, IDS, False, (4, "t")),
    ],
    ids=["by id", "an older broker", "one unknown", "none known", "an older transaction"],
)
async def test_offsets_of_a_transaction_name_topics_by_id_if_all_are_known(
    monkeypatch: pytest.MonkeyPatch, newest: int, ids: Any, is_v2: bool, expected: tuple[int, Any]
) -> None:
    assert await committed(monkeypatch, Coordinator(newest), ids, is_v2=is_v2) == expected


async def test_deleted_group_makes_the_transaction_abortable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Coordinator(6, ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(GroupIdNotFound) as caught:
        await committed(monkeypatch, connection, IDS, is_v2=True)
    assert caught.value.abortable
