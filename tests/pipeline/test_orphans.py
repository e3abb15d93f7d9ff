"""Test the abort of transactions that sinks have left, while a broker does not answer."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client import Admin
from oncelog.pipeline.sink import orphans
from oncelog.wire.errors import NetworkException

from ..client.test_silent_brokers import HalfSilentView


async def test_orphans_of_a_prefix_need_no_silent_broker_but_those_of_an_id_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command prints the silent brokers of a prefix itself, after its other rows."""
    monkeypatch.setattr(orphans, "Admin", partial(Admin, timeout_ms=50))
    login = cast(Any, SimpleNamespace(open_view=lambda _: HalfSilentView(2)))
    assert await orphans.end_orphans(login, "oncelog.spark.") == []
    with pytest.raises(NetworkException, match="node 2"):
        await orphans.end_orphans(login, "oncelog.spark.a.ctl", only="oncelog.spark.a.ctl")
