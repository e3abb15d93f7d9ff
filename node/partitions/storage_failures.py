"""Reports of failed logs to the controller, and of disk errors to the broker's log.

The broker has already stopped serving a failed log (KAFKA_STORAGE_ERROR). Only the replicated
metadata can make another replica lead, so a report is repeated until the controller answers.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path

from ...coordinator.metadata.commands import Command, FailReplicas
from ...coordinator.metadata.results import Result
from ...runtime.background_task import background_task, end_tasks
from ...wire.errors import KafkaError
from .ports import DiskReport, FailedLogs

logger = logging.getLogger(__name__)
Propose = Callable[[Command], Awaitable[Result]]
GATHER_S = 0.02  # a failing disk breaks many logs at almost the same time
RETRY_S = 0.2
LOOK_S = 2.0
TRIAL, TRIAL_BYTES = ".disk-trial", 1 << 20
FULL = "is full"
TROUBLES = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EROFS: "is read-only",
    errno.EIO: "fails",
}
ENDS = {FULL: "there is space again"}
OTHER_END = "the disk is repaired and this node is restarted"


class StorageFailures(FailedLogs):
    """The failed replicas of one broker that the controller has not confirmed yet."""

    def __init__(self, propose: Propose, *, node_id: int, broker_epoch: int) -> None:
        self._propose = propose
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._unreported: dict[tuple[bytes, int], object] = {}  # a new value for each report
        self._task: asyncio.Task[None] | None = None

    def report(self, topic_id: bytes, index: int) -> None:
        self._unreported[topic_id, index] = object()
        if self._task is None or self._task.done():
            self._task = background_task("failed replicas", self._run())

    def withdraw(self, topic_id: bytes, index: int) -> None:
        if self._unreported.pop((topic_id, index), self) is self:
            return
        if self._task is not None:  # the report may be in flight
            self._task.cancel()
            self._task = background_task("failed replicas", self._run())

    async def stop(self) -> None:
        if self._task is not None:
            await end_tasks(self._task)

    async def _run(self) -> None:
        await asyncio.sleep(GATHER_S)
        while self._unreported:
            sent = dict(self._unreported)
            try:
                result = await self._propose(
                    FailReplicas(self._node_id, self._broker_epoch, tuple(sent))
                )
            except KafkaError as error:
                logger.warning(
                    "failed replicas could not be reported to the controller, which will "
                    "be retried: %s",
                    error,
                )
                await asyncio.sleep(RETRY_S)
                continue
            if result.error:
                logger.error(
                    "the controller refused the report of failed replicas: %s", result.message
                )
            for key, report in sent.items():
                if self._unreported.get(key) is report:  # none was made since
                    del self._unreported[key]


class DiskTrouble(DiskReport):
    """The log lines about the first write error of the disk, and about the end of the errors.

    A full disk may have space again. A failed log stays failed until the broker restarts.
    """

    def __init__(self, directory: Path, executor: Executor) -> None:
        self.words = self._end = ""
        self._directory, self._executor = directory, executor
        self._is_lasting = self._is_noted = self._is_stopped = False
        self._task: asyncio.Task[None] | None = None

    def note(self, error: BaseException, *, is_log_lost: bool = False) -> None:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in TROUBLES:
            return
        self._is_noted = True
        self._is_lasting |= is_log_lost
        what, reason = TROUBLES[cause.errno], os.strerror(cause.errno)
        end = OTHER_END if self._is_lasting else ENDS.get(what, OTHER_END)
        if self.words and end == self._end:
            return
        self._end = end
        self.words = f"the disk {what} ({reason})"
        logger.error(
            "the disk of %s %s (%s), so writes get KAFKA_STORAGE_ERROR until %s",
            self._directory,
            what,
            reason,
            end,
        )
        if self._task is None and not self._is_stopped:
            self._task = background_task("disk", self._until_it_is_over())

    async def stop(self) -> None:
        self._is_stopped = True  # later errors are logged, but their end is not checked
        if self._task is not None:
            await end_tasks(self._task)

    async def _until_it_is_over(self) -> None:
        loop = asyncio.get_running_loop()
        is_over = False
        while not is_over:
            self._is_noted = False
            await asyncio.sleep(LOOK_S)
            if not self._is_noted and not self._is_lasting:
                takes_writes = await loop.run_in_executor(self._executor, self._takes_writes)
                is_over = takes_writes and not self._is_noted  # no write failed in the meantime
        self.words, self._task = "", None
        logger.warning("the disk of %s accepts writes again", self._directory)

    def _takes_writes(self) -> bool:
        path = self._directory / TRIAL
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.unlink(path)  # unlinked now, so that a killed process leaves no file
                return os.pwrite(file, bytes(TRIAL_BYTES), 0) == TRIAL_BYTES
            finally:
                os.close(file)
        except OSError:
            return False
