"""The requests of a transactional id keep to the deadline of the call that makes them."""

import asyncio
import time
from typing import Any

import pytest

from oncelog.client.cluster_view import ClusterView
from oncelog.client.connection import BrokerConnection
from oncelog.client.retries import now_ms
from oncelog.client.transactions import requests as requests_module
from oncelog.client.transactions.requests import TransactionRequests
from oncelog.wire.errors import RequestTimedOut


async def test_a_coordinator_that_stands_still_does_not_hold_a_call_beyond_its_deadline(
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
