"""Group commit: who asks for a flush, and when, makes no difference to the promises."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oncelog.node.partitions.log_flusher import LogFlusher
from oncelog.storage.log_durability import SEGMENTS_A_JOB
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import open_hosted


async def test_who_has_waited_for_a_flush_may_ask_for_the_next_one(tmp_path: Path) -> None:
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    hosted = open_hosted(tmp_path)
    flusher = LogFlusher(loop, flushed=lambda _: None, failed=lambda _: None)
    done = asyncio.Event()
    flusher.flush(hosted, lambda: flusher.flush(hosted, done.set))
    async with asyncio.timeout(10):
        await done.wait()
    await asyncio.sleep(0)
    assert not problems


async def test_who_fails_after_a_flush_fails_alone(tmp_path: Path) -> None:
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    hosted = open_hosted(tmp_path)
    seen: list[str] = []
    done = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("of this one alone")

    def flushed(_: object) -> None:
        seen.append("flushed")
        done.set()

    flusher = LogFlusher(loop, flushed=flushed, failed=lambda _: None)
    flusher.flush(hosted, fail)
    flusher.flush(hosted, lambda: seen.append("second"))
    async with asyncio.timeout(10):
        await done.wait()
    assert seen == ["second", "flushed"]
    assert [str(problem["exception"]) for problem in problems] == ["of this one alone"]


async def test_who_waits_for_a_flush_of_many_segments_waits_for_all(tmp_path: Path) -> None:
    hosted = open_hosted(tmp_path, segment_bytes=100)
    log = hosted.log
    for offset in range(80):
        log.append_as_follower(
            encode_batch([Record(offset, 1, b"k", b"v")], base_offset=offset), now_ms=1
        )
    assert len(log.segments) > 2 * SEGMENTS_A_JOB
    flusher = LogFlusher(asyncio.get_running_loop(), flushed=lambda _: None, failed=lambda _: None)
    points: list[int] = []
    done = asyncio.Event()
    flusher.flush(hosted, lambda: points.append(log.recovery_point))
    flusher.flush(hosted, done.set)
    async with asyncio.timeout(10):
        await done.wait()
    assert points == [80]


async def test_what_is_left_of_a_flush_when_a_broker_stops_is_left_to_the_close(
    tmp_path: Path,
) -> None:
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    hosted = open_hosted(tmp_path, segment_bytes=100)
    log = hosted.log
    for offset in range(2 * SEGMENTS_A_JOB):
        log.append_as_follower(
            encode_batch([Record(offset, 1, b"k", b"v")], base_offset=offset), now_ms=1
        )
    flusher = LogFlusher(loop, flushed=lambda _: None, failed=lambda _: None)
    flusher.start(lambda count, _: ThreadPoolExecutor(count))
    flusher.flush(hosted)
    await asyncio.sleep(0)
    flusher.stop()
    async with asyncio.timeout(10):
        while not log.recovery_point:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    assert not problems
    log.close()
    assert log.recovery_point == log.log_end_offset
