"""Test the clock of one broker, which `oncelog clock` advances through the admin socket."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.admin_socket import AdminSocket
from oncelog.replication.peer.link_gate import LinkGate
from oncelog.wire.record_batch import decode_header

from ..awaiting import until
from .leading_broker import plain
from .own_broker import OwnBroker, running

HOUR_MS = 3_600_000
CONTROLLED = {"oncelog.clock": "controlled", "log.retention.hours": "1"}


async def ask(broker: OwnBroker, **request: Any) -> dict[str, Any]:
    """Send a request to the broker's admin socket, and return the answer."""
    path = Path(broker.config.peer_directory) / "admin-1"
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(json.dumps(request).encode() + b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    return answer


async def advance(broker: OwnBroker, by_ms: Any, operation: str = "0a") -> dict[str, Any]:
    return await ask(broker, op="advance-clock", by_ms=by_ms, operation_id=operation * 16)


async def looked(broker: OwnBroker, advanced_ms: int) -> None:
    while (await ask(broker, op="clock"))["looked_ms"] != advanced_ms:
        await asyncio.sleep(0.01)


async def test_clock_advance_triggers_checks_immediately_and_is_kept_in_metadata(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, settings=CONTROLLED) as broker:
        await broker.create("a")
        await until(lambda: broker.serves("a"))
        log = broker.append("a")
        assert await advance(broker, HOUR_MS) == {"advanced_ms": HOUR_MS}
        assert await advance(broker, HOUR_MS) == {"advanced_ms": HOUR_MS}  # the same operation
        await looked(broker, HOUR_MS)
        assert log.log_start_offset == log.log_end_offset == 1
        data = memoryview(plain())
        broker.replicas.append(broker.replicas.partition("a", 0), data, decode_header(data), 1)
        assert await advance(broker, HOUR_MS // 2, "0b") == {"advanced_ms": HOUR_MS * 3 // 2}
        await looked(broker, HOUR_MS * 3 // 2)
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)
        await broker.snapshot()
    async with running(tmp_path, settings=CONTROLLED) as broker:
        clock = await ask(broker, op="clock")
        assert clock["is_controlled"] and clock["advanced_ms"] == HOUR_MS * 3 // 2
        assert clock["now_ms"] - broker._clock.wall_ms() <= HOUR_MS * 3 // 2
        await looked(broker, HOUR_MS * 3 // 2)  # at its start
        await until(lambda: broker.serves("a"))
        await advance(broker, HOUR_MS // 2, "0c")
        await looked(broker, 2 * HOUR_MS)
        log = broker.replicas.partition("a", 0).log
        assert log.log_start_offset == 2


async def test_log_opened_before_a_clock_advance_is_served_with_the_advanced_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, settings=CONTROLLED) as broker:
        logs, is_opened, may_serve = broker._logs, threading.Event(), threading.Event()
        run_jobs = logs.run_jobs

        def run_jobs_slowly(jobs: Any) -> Any:
            outcomes = run_jobs(jobs)
            is_opened.set()
            assert may_serve.wait(20)
            return outcomes

        monkeypatch.setattr(logs, "run_jobs", run_jobs_slowly)
        creating = asyncio.create_task(broker.create("a"))
        await until(is_opened.is_set)
        await advance(broker, HOUR_MS)
        may_serve.set()
        await creating
        await until(lambda: broker.serves("a"))
        local = broker.replicas.partition("a", 0).log.local
        assert local.advanced_since_ms(0) == HOUR_MS


async def test_clock_advance_of_a_broker_with_the_system_clock_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        refused = await advance(broker, HOUR_MS)
        assert "cannot be advanced" in refused["refused"]
        clock = await ask(broker, op="clock")
        assert (clock["is_controlled"], clock["advanced_ms"]) == (False, 0)


async def test_admin_request_that_is_invalid_is_answered_with_a_message(tmp_path: Path) -> None:
    async with running(tmp_path, settings=CONTROLLED) as broker:
        for by_ms in (0, -1, 1 << 70, float("inf"), float("nan"), True, "5"):
            assert "1 ms to 100 years" in (await advance(broker, by_ms))["error"]
        assert "32 hex" in (await advance(broker, 5, "")).get("error", "")
        assert "not understood" in (await ask(broker, op="advance-clock", by_ms=5))["error"]
        assert "unknown op" in (await ask(broker, op="advance"))["error"]


def test_admin_requests_other_than_the_clock_are_answered_without_an_event_loop() -> None:
    door = AdminSocket(Path(), LinkGate(), dict)
    assert door._answer(b'{"op": "heal"}') == {"ok": True}
