"""The part of a group membership that polls drive, the same for both group protocols.

Rules of this file. Partitions come and go inside polls alone, so that a program does not lose one
while it works on records of it; a poll that is over leaves what is under way to the next ones.
What a callback raises comes out of the poll when the rebalance has gone on, once.
"""

from typing import Generic, TypeVar

from ...wire.errors import KafkaError
from ..group_metadata import GroupMetadata
from ..long_work import LongWork
from ..retries import now_ms
from ..settings import Settings
from .coordinator_requests import CoordinatorRequests
from .holding import Holding

Requests = TypeVar("Requests", bound=CoordinatorRequests)


class PolledMember(Generic[Requests]):
    """See the top of the file. Each protocol says what is due, and does it."""

    holding: Holding
    requests: Requests

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._settling, self._heartbeats = LongWork(), LongWork()
        self._problem: KafkaError | None = None  # which has ended it
        self._polled_ms = now_ms()

    async def poll(self, deadline_ms: int) -> bool:
        """Do what is due; False when the deadline came first. Raises what ended it.

        What it keeps meanwhile is read on.
        """
        self._polled_ms = now_ms()
        if self._problem is not None:
            await self.holding.lose()
            raise self._problem
        is_settled = True
        if self._settling.is_running or self._is_due():
            if self._reads_on:
                deadline_ms = now_ms()
            is_settled = await self._settling.until(deadline_ms, self._settle)
            if is_settled:
                self._polled_ms = now_ms()
        self.holding.callbacks.raise_problem()
        return is_settled

    def polled(self) -> GroupMetadata:
        """Return the group metadata for offsets of the records that a poll is about to return."""
        self.holding.polled()
        return self.requests.metadata

    def stop(self) -> None:
        """Stop, without a word to the group."""
        self._settling.drop()
        self._heartbeats.drop()

    def _is_due(self) -> bool:
        """Whether there is anything to settle."""
        raise NotImplementedError

    @property
    def _reads_on(self) -> bool:
        """Whether there is anything to read meanwhile."""
        raise NotImplementedError

    async def _settle(self) -> None:
        """Give up and take until nothing is due."""
        raise NotImplementedError
