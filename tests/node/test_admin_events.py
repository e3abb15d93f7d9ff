"""Test faults and log levels set through a node's admin socket, and the events for faults."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.admin_socket import AdminSocket
from oncelog.replication.peer.link_gate import LinkGate
from oncelog.runtime.event_log import EventLog

NOW_S = 5.0


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> EventLog:
    caplog.set_level(logging.INFO, "oncelog.events")
    return EventLog(lambda: NOW_S)


@pytest.fixture
def door(events: EventLog) -> AdminSocket:
    return AdminSocket(Path(), LinkGate(), dict, node_id=1, events=events)


def ask(door: AdminSocket, **request: Any) -> dict[str, Any]:
    return door._answer(json.dumps(request).encode())


def sentences(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["sentence"] for record in caplog.records]


def test_link_fault_change_is_logged(door: AdminSocket, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(door, op="heal") == {"ok": True}  # there was no fault
    assert ask(door, op="cut", peer=2, inbound=False, outbound=True) == {"ok": True}
    assert ask(door, op="links")["faults"]
    assert ask(door, op="delay", peer=3, delay_ms=50) == {"ok": True}
    assert ask(door, op="heal") == {"ok": True}
    assert sentences(caplog) == [
        "node 1: cut its link to node 2 outbound",
        "node 1: delay its link to node 3 by 50 ms",
        "node 1: heal all its links",
    ]


def test_logger_level_is_changed_while_the_node_runs(door: AdminSocket) -> None:
    logger = logging.getLogger("oncelog.of.this.test")
    assert ask(door, op="level", level="debug", logger=logger.name) == {"ok": True}
    assert logger.isEnabledFor(logging.DEBUG)
    assert "none of DEBUG" in ask(door, op="level", level="loud", logger=logger.name)["error"]
    assert ask(door, op="level", level="warning", logger=logger.name) == {"ok": True}
    assert not logger.isEnabledFor(logging.INFO)
