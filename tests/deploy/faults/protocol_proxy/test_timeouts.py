"""Test the timeouts in requests that the proxy lowers, and those that it leaves unchanged."""

from typing import Any

import pytest

from oncelog.deploy.faults.protocol_proxy.timeouts import with_lower_timeouts

from .frames import request_frame, request_from
from .samples import SAMPLES

JOIN, INIT = SAMPLES["JoinGroup"], SAMPLES["InitProducerId"]


def lowered(api: str, version: int, values: dict[str, Any]) -> tuple[Any, Any, str]:
    frame = memoryview(request_frame(api, version, values, client_id="it"))
    changed, what = with_lower_timeouts(request_from(frame), frame, 10_000)
    if not what:
        assert changed is frame
    return request_from(frame).body, request_from(memoryview(changed)).body, what


@pytest.mark.parametrize("version", range(1, 10))
def test_join_group_with_a_lowered_session_timeout_keeps_its_rebalance_timeout(version):
    before, after, what = lowered("JoinGroup", version, JOIN)
    assert (after.session_timeout, after.rebalance_timeout) == (6_000, 300_000)
    assert what == "session_timeout_ms 45000 -> 6000"
    after.session_timeout = before.session_timeout
    assert after == before


@pytest.mark.parametrize("version", range(7))
def test_init_producer_id_gets_the_lowered_transaction_timeout(version):
    before, after, what = lowered("InitProducerId", version, INIT)
    assert (after.transaction_timeout, what) == (10_000, "transaction_timeout_ms 60000 -> 10000")
    after.transaction_timeout = before.transaction_timeout
    assert after == before


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        ("JoinGroup", 0, JOIN),  # one value says both
        ("JoinGroup", 9, JOIN | {"session_timeout": 6_000}),
        ("InitProducerId", 4, INIT | {"transaction_timeout": 5_000}),
        ("InitProducerId", 4, INIT | {"transactional_id": None, "transaction_timeout": 2**31 - 1}),
        ("InitProducerId", 6, INIT | {"enable2_pc": True}),  # its owner decides, no timeout
        ("SyncGroup", 5, SAMPLES["SyncGroup"]),
    ],
)
def test_request_without_a_timeout_to_lower_is_unchanged(api, version, values):
    before, after, what = lowered(api, version, values)
    assert (after, what) == (before, "")
