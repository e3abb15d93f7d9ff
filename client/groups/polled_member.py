"""The part of a group membership that polls drive, the same for both group protocols.

This file follows some rules. Assignments change only inside polls, so that an application does not
lose a partition while it processes the partition's records. When the time of a poll is over, the
next polls continue the rebalance. A poll raises the error of a callback once, after the rebalance
has continued.
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
    """A group member that polls drive. The subclass for each protocol does the work."""

    holding: Holding
    requests: Requests

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._settling, self._heartbeats = LongWork(), LongWork()
        self._problem: KafkaError | None = None  # the error that has ended the membership
        self._polled_ms = now_ms()

    async def poll(self, deadline_ms: int) -> bool:
        """Do work that is due. Return False at the deadline.

        Raises the error that ended the membership. Partitions that stay assigned are read
        meanwhile.
        """
        self._polled_ms = now_ms()
        if self._problem is not None:
            await self.holding.lose()
            self.holding.callbacks.raise_problem()  # the next poll raises the other one
            raise self._problem
        is_settled = True
        if self._settling.is_running or self._is_due():
            if self._reads_on:
                deadline_ms = now_ms()
            try:
                is_settled = await self._settling.until(deadline_ms, self._settle)
            except KafkaError:
                self.holding.callbacks.raise_problem()  # of its last callbacks
                raise
            if is_settled:
                self._polled_ms = now_ms()
        self.holding.callbacks.raise_problem()
        return is_settled

    def polled(self) -> GroupMetadata:
        """Return the group metadata for offsets of the records that a poll is about to return."""
        self.holding.polled()
        return self.requests.metadata

    def stop(self) -> None:
        """Cancel the heartbeats and the running work, but do not leave the group."""
        self._settling.drop()
        self._heartbeats.drop()

    def _is_due(self) -> bool:
        """Return whether there is work to do, such as a join or a revocation."""
        raise NotImplementedError

    @property
    def _reads_on(self) -> bool:
        """Return whether the member's partitions can be read while the work is being done."""
        raise NotImplementedError

    async def _settle(self) -> None:
        """Revoke and take partitions until nothing is due."""
        raise NotImplementedError
