"""Test that each requested flush calls back after its sync, also when flushes are grouped."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.log_flusher import LogFlusher
from oncelog.storage.log_durability import SEGMENTS_A_JOB
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ..hosted_logs import open_hosted

Problems = list[dict[str, Any]]


@pytest.fixture
@asynccontextmanager
async def problems() -> AsyncIterator[Problems]:
    """Yield the list of calls of the event loop's exception handler."""
    found: Problems = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    yield found


def with_segments(directory: Path, count: int) -> HostedPartition:
    hosted = open_hosted(directory, segment_bytes=100)
    for offset in range(count):
        record = encode_batch([Record(offset, 1, b"k", b"v")], base_offset=offset)
        hosted.log.append_as_follower(record, now_ms=1)
    return hosted


async def test_flush_callback_may_request_the_next_flush(
    tmp_path: Path, problems: Problems
) -> None:
    hosted = open_hosted(tmp_path)
    flusher = LogFlusher(flushed=lambda _: None, failed=lambda _: None)
    done = asyncio.Event()
    flusher.flush(hosted, lambda: flusher.flush(hosted, done.set))
    await until(done.is_set)
    await asyncio.sleep(0)
    assert not problems


async def test_flush_callback_that_fails_does_not_stop_other_callbacks(
    tmp_path: Path, problems: Problems
) -> None:
    hosted = open_hosted(tmp_path)
    seen: list[str] = []
    done = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("of this one alone")

    def flushed(_: object) -> None:
        seen.append("flushed")
        done.set()

    flusher = LogFlusher(flushed=flushed, failed=lambda _: None)
    flusher.flush(hosted, fail)
    flusher.flush(hosted, lambda: seen.append("second"))
    await until(done.is_set)
    assert seen == ["second", "flushed"]
    assert [str(problem["exception"]) for problem in problems] == ["of this one alone"]


async def test_flush_of_many_segments_calls_back_after_the_last(tmp_path: Path) -> None:
    hosted = with_segments(tmp_path, 80)
    log = hosted.log
    assert len(log.segments) > 2 * SEGMENTS_A_JOB
    flusher = LogFlusher(flushed=lambda _: None, failed=lambda _: None)
    points: list[int] = []
    done = asyncio.Event()
    flusher.flush(hosted, lambda: points.append(log.flushing.recovery_point))
    flusher.flush(hosted, done.set)
    await until(done.is_set)
    assert points == [80]


async def test_flush_interrupted_by_a_broker_stop_is_completed_by_the_close(
    tmp_path: Path, problems: Problems
) -> None:
    hosted = with_segments(tmp_path, 2 * SEGMENTS_A_JOB)
    log = hosted.log
    flusher = LogFlusher(flushed=lambda _: None, failed=lambda _: None)
    flusher.start(lambda count, _: ThreadPoolExecutor(count))
    flusher.flush(hosted)
    await asyncio.sleep(0)
    flusher.stop()
    await until(lambda: log.flushing.recovery_point)
    await asyncio.sleep(0)
    assert not problems
    log.close()
    assert log.flushing.recovery_point == log.log_end_offset
