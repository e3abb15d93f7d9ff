"""Reports of logs that have failed: repeated until the controller knows, unless they got well."""

import asyncio

import pytest

from oncelog.coordinator.metadata.commands import Command, FailReplicas
from oncelog.coordinator.metadata.results import Result
from oncelog.node.partitions import storage_failures
from oncelog.node.partitions.storage_failures import StorageFailures
from oncelog.wire.errors import RequestTimedOut

TOPIC_ID = bytes(range(16))


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


async def until_asked(controller: Controller, count: int) -> None:
    async with asyncio.timeout(10):
        while len(controller.asked) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_log_that_was_opened_after_all_is_not_taken_out(is_asked: bool) -> None:
    async def run() -> list[tuple[int, ...]]:
        controller = Controller()
        failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
        for index in range(3):
            failures.report_key(TOPIC_ID, index)
        if is_asked:
            await until_asked(controller, 1)
        failures.withdraw(TOPIC_ID, 1)
        failures.withdraw(TOPIC_ID, 7)
        await until_asked(controller, 1 + is_asked)
        controller.is_there.set()
        async with asyncio.timeout(10):
            while failures._unreported:
                await asyncio.sleep(0.001)
        await failures.stop()
        return controller.decided

    assert asyncio.run(run()) == [(0, 2)]


def test_nothing_is_asked_for_the_only_log_that_was_opened_after_all() -> None:
    async def run() -> list[tuple[int, ...]]:
        controller = Controller()
        failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
        failures.report_key(TOPIC_ID, 0)
        await until_asked(controller, 1)
        failures.withdraw(TOPIC_ID, 0)
        controller.is_there.set()
        await asyncio.sleep(0.05)
        failures.report_key(TOPIC_ID, 5)
        await until_asked(controller, 2)
        await failures.stop()
        return controller.decided

    assert asyncio.run(run()) == [(5,)]


def test_a_report_is_repeated_until_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_failures, "RETRY_S", 0.001)

    async def run() -> int:
        count = 0

        async def propose(command: Command) -> Result:
            nonlocal count
            count += 1
            if count < 4:
                raise RequestTimedOut
            return Result()

        failures = StorageFailures(propose, node_id=1, broker_epoch=1)
        failures.report_key(TOPIC_ID, 0)
        async with asyncio.timeout(10):
            while failures._unreported:
                await asyncio.sleep(0.001)
        await failures.stop()
        return count

    assert asyncio.run(run()) == 4
