"""Reports of logs that have failed: repeated until the controller knows, unless they got well."""

import asyncio

import pytest

from oncelog.coordinator.metadata.commands import Command, FailReplicas
from oncelog.coordinator.metadata.results import Result
from oncelog.node.partitions import storage_failures
from oncelog.node.partitions.storage_failures import StorageFailures
from oncelog.wire.errors import RequestTimedOut

from ...awaiting import until
from ..hosted_logs import TOPIC_ID


class Controller:
    """It answers while it `is_there`; who asks before that waits, as for an election."""

    def __init__(self) -> None:
        self.is_there = asyncio.Event()
        self.asked: list[tuple[int, ...]] = []
        self.decided: list[tuple[int, ...]] = []

    async def propose(self, command: Command) -> Result:
        assert isinstance(command, FailReplicas)
        indexes = tuple(index for _, index in command.partitions)
        self.asked.append(indexes)
        await self.is_there.wait()
        self.decided.append(indexes)
        return Result()


@pytest.mark.parametrize("is_asked", [False, True])
async def test_a_log_that_was_opened_after_all_is_not_taken_out(is_asked: bool) -> None:
    controller = Controller()
    failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
    for index in range(3):
        failures.report(TOPIC_ID, index)
    if is_asked:
        await until(lambda: len(controller.asked) == 1)
    failures.withdraw(TOPIC_ID, 1)
    failures.withdraw(TOPIC_ID, 7)
    await until(lambda: len(controller.asked) == 1 + is_asked)
    controller.is_there.set()
    await until(lambda: not failures._unreported)
    await failures.stop()
    assert controller.decided == [(0, 2)]


async def test_nothing_is_asked_for_the_only_log_that_was_opened_after_all() -> None:
    controller = Controller()
    failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
    failures.report(TOPIC_ID, 0)
    await until(lambda: controller.asked)
    failures.withdraw(TOPIC_ID, 0)
    controller.is_there.set()
    await asyncio.sleep(0.05)
    failures.report(TOPIC_ID, 5)
    await until(lambda: len(controller.asked) == 2)
    await failures.stop()
    assert controller.decided == [(5,)]


async def test_a_report_is_repeated_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_failures, "RETRY_S", 0.001)

    count = 0

    async def propose(command: Command) -> Result:
        nonlocal count
        count += 1
        if count < 4:
            raise RequestTimedOut
        return Result()

    failures = StorageFailures(propose, node_id=1, broker_epoch=1)
    failures.report(TOPIC_ID, 0)
    await until(lambda: not failures._unreported)
    await failures.stop()
    assert count == 4
