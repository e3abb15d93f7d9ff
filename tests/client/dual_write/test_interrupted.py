"""Test that an interrupted block leaves no transaction open, and that its writer continues."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from oncelog.client import BlockingDualWriter, DualWriter
from oncelog.client.dual_write import steps
from oncelog.client.dual_write.flow import Flow
from oncelog.client.failures import ClientClosed

from .ledger import Ledger, assert_equal

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
ENDING, UNDOING = ("BeginBoth", "Prepare", "Decide", "EndAsDecided"), ("RollBack", "AbortOwn")
POINTS = [f"{when} {name}" for name in ENDING + UNDOING for when in ("before", "after")]
SWEEPS = 60


class SoftLimit(Exception):
    """An exception raised by a signal handler, like Celery's SoftTimeLimitExceeded."""


class CancelledWriter(DualWriter):
    """A writer that cancels the task of its caller at the point that a test chooses."""

    point = ""
    caller: asyncio.Task[None]

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        name = type(effect).__name__
        yield from self._meet(f"before {name}")
        event = yield from super()._perform(effect)
        yield from self._meet(f"after {name}")
        return event

    def _meet(self, point: str) -> Flow[None]:
        if point == self.point:
            self.point = ""
            self.caller.cancel()
            yield partial(asyncio.sleep, 0)

    async def cancelled_at(self, point: str, work: Any) -> None:
        self.point = point
        self.caller = asyncio.create_task(work)
        with contextlib.suppress(asyncio.CancelledError):
            await self.caller
        assert self.caller.cancelled() and not self.point


async def transfer(
    writer: DualWriter, ledger: Ledger, topic: str, number: int, *, fails: bool = False
) -> None:
    async with writer.transaction() as work:
        await work.execute(ledger.insert, (number, 5))
        await work.send(topic, b"%d" % number)
        if fails:
            raise ZeroDivisionError


def fails_at(point: str) -> bool:
    return point.endswith(UNDOING)


async def test_writer_continues_after_its_caller_was_cancelled(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    async with CancelledWriter(bootstrap, topic, ledger.connect) as writer:
        for at, point in enumerate(POINTS):
            cut = transfer(writer, ledger, topic, 10 * at, fails=fails_at(point))
            await writer.cancelled_at(point, cut)
            await transfer(writer, ledger, topic, 10 * at + 1)
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    numbers = ledger.rows()
    assert {10 * at + 1 for at in range(len(POINTS))} < set(numbers), numbers
    assert 10 * POINTS.index("before EndAsDecided") in numbers, "it was decided"
    assert 10 * POINTS.index("after BeginBoth") not in numbers


@pytest.mark.parametrize("point", POINTS)
async def test_writer_close_after_a_cancelled_caller_ends_the_open_block(
    bootstrap: str, ledger: Ledger, topic: str, point: str
) -> None:
    async with CancelledWriter(bootstrap, topic, ledger.connect) as writer:
        cut = transfer(writer, ledger, topic, 1, fails=fails_at(point))
        await writer.cancelled_at(point, cut)
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    with pytest.raises(ClientClosed):
        await transfer(writer, ledger, topic, 2)


async def test_dual_write_blocks_waiting_for_a_cancelled_block_do_not_run_concurrently(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    async with CancelledWriter(bootstrap, topic, ledger.connect) as writer:
        await writer.cancelled_at("before Prepare", transfer(writer, ledger, topic, 1))
        waiting = [transfer(writer, ledger, topic, number) for number in (2, 3)]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(str(each)[-19:] for each in found) == ["None", "one block at a time"], found
        await writer.cancelled_at("before Decide", transfer(writer, ledger, topic, 4))
        assert await writer.positions() == {}
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)


class InterruptedWriter(BlockingDualWriter):
    """A writer that raises the given exceptions, each at the point given for it."""

    points: tuple[tuple[str, BaseException], ...] = ()

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        name = type(effect).__name__
        self._meet(f"before {name}")
        event = yield from super()._perform(effect)
        self._meet(f"after {name}")
        return event

    def _meet(self, point: str) -> None:
        if self.points and point == self.points[0][0]:
            (_, problem), *rest = self.points
            self.points = tuple(rest)
            raise problem


def blocking_transfer(
    writer: BlockingDualWriter, ledger: Ledger, topic: str, number: int, *, fails: bool = False
) -> None:
    with writer.transaction() as work:
        work.execute(ledger.insert, (number, 5))
        work.send(topic, b"%d" % number)
        if fails:
            raise ZeroDivisionError


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SoftLimit])
def test_blocking_writer_continues_after_an_interruption(
    bootstrap: str, ledger: Ledger, topic: str, problem: type[BaseException]
) -> None:
    with InterruptedWriter(bootstrap, topic, ledger.connect) as writer:
        for at, point in enumerate(POINTS):
            writer.points = ((point, problem(point)),)
            fails = fails_at(point)
            expected = (problem, ZeroDivisionError) if fails else problem
            with pytest.raises(expected):
                blocking_transfer(writer, ledger, topic, 10 * at, fails=fails)
            assert not writer.points
            blocking_transfer(writer, ledger, topic, 10 * at + 1)
    assert_equal(bootstrap, topic, ledger)
    numbers = ledger.rows()
    assert {10 * at + 1 for at in range(len(POINTS))} < set(numbers), numbers
    assert 10 * POINTS.index("after Decide") in numbers, "it was decided"


TWICE = [
    ("before Prepare", "before RollBack"),
    ("after Prepare", "before AbortOwn"),
    ("before Decide", "before ReadOrAbort"),
    ("after Decide", "after ReadOrAbort"),
    ("after EndAsDecided", "before EndAsDecided"),
]


@pytest.mark.parametrize("is_closed", [False, True], ids=["next", "close"])
def test_block_interrupted_twice_is_ended_by_the_next_block_or_the_close(
    bootstrap: str, ledger: Ledger, topic: str, is_closed: bool
) -> None:
    for at, points in enumerate(TWICE):
        with InterruptedWriter(bootstrap, topic, ledger.connect) as writer:
            writer.points = tuple((point, KeyboardInterrupt(point)) for point in points)
            with pytest.raises(KeyboardInterrupt, match=points[1]):
                blocking_transfer(writer, ledger, topic, 10 * at)
            assert not writer.points
            if not is_closed:
                blocking_transfer(writer, ledger, topic, 10 * at + 1)
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows().count(31) == (not is_closed) and 30 in ledger.rows()


@contextlib.contextmanager
def alarms() -> Generator[None]:
    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.chaos
@pytest.mark.filterwarnings("ignore")  # of coroutines that were made, and never begun
def test_blocking_writer_survives_signals_at_any_moment(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    cuts = 0
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer, alarms():
        whole_s = 60.0
        for number in range(1, 6):
            begun_s = time.monotonic()
            blocking_transfer(writer, ledger, topic, -number)
            whole_s = min(whole_s, time.monotonic() - begun_s)
        for number in range(SWEEPS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1.5 * whole_s * (number + 1) / SWEEPS)
                blocking_transfer(writer, ledger, topic, 10 * number)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                cuts += 1
            blocking_transfer(writer, ledger, topic, 10 * number + 1)
    assert_equal(bootstrap, topic, ledger)
    assert cuts > 10 and len(ledger.rows()) >= SWEEPS, cuts
