"""Test log texts of the client about a batch, many partitions, and a reset of the position."""

from typing import Any

import pytest

from oncelog.client.fetch.positions import Positions
from oncelog.client.fetch.state import FetchState
from oncelog.client.groups.holding import NAMED_MAX, named
from oncelog.client.produce.accumulator import ProducerBatch
from oncelog.client.settings import consumer_settings


def test_log_line_about_a_batch_names_its_partition_and_size() -> None:
    assert repr(ProducerBatch("orders", 3, 0, 0)) == "a batch of 0 records of orders/3"


def test_log_line_about_many_partitions_is_short() -> None:
    line = named({("t", index) for index in range(10_000)})
    assert line.startswith("10000 partitions (t/0, t/1, ") and line.endswith(", ...)")
    assert line.count("t/") == NAMED_MAX


def test_log_line_is_written_for_a_position_reset(caplog: pytest.LogCaptureFixture) -> None:
    view: Any = None  # no broker is asked
    settings = consumer_settings({"bootstrap.servers": "h:1", "auto.offset.reset": "latest"}, {})
    positions = Positions(view, settings, None)
    state = FetchState("t", 0, 7)
    positions.states[("t", 0)] = state
    positions.out_of_range(state, state.fetch_offset)
    assert (
        "t/0 has no offset 7, so the consumer continues with auto.offset.reset=latest"
        in caplog.text
    )
