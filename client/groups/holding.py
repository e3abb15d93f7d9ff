"""The partitions that a group member of either protocol owns.

The application's rebalance listener is called when they change.
"""

import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition
from ..failures import CommitFailed
from .callbacks import Callbacks

logger = logging.getLogger(__name__)
NAMED_MAX = 10  # partitions in a log line
Partitions = set[TopicPartition]


@dataclass(slots=True)
class RebalanceListener:
    """Callbacks of the application, which are functions or coroutine functions of partitions.

    Without `on_lost`, `on_revoked` is also called for lost partitions.
    """

    on_assigned: Callable[[list[TopicPartition]], Any] | None = None
    on_revoked: Callable[[list[TopicPartition]], Any] | None = None
    on_lost: Callable[[list[TopicPartition]], Any] | None = None


class Holding:
    """The partitions that a member owns.

    changed(gone, added): called after partitions were removed or added, and with empty sets when
    other partitions are about to be revoked. before_revoking: awaited before partitions are revoked
    (the consumer commits). member: the name of the member in the log.
    """

    def __init__(
        self,
        member: object,
        changed: Callable[[Partitions, Partitions], None],
        before_revoking: Callable[[], Awaitable[None]],
    ) -> None:
        self._member, self._changed, self._before_revoking = member, changed, before_revoking
        self.listener, self.callbacks = RebalanceListener(), Callbacks()
        self.partitions: Partitions = set()
        self.going: Partitions = set()  # about to be revoked: polls return no records of them
        self._takes = itertools.count(1)
        self._taken: dict[TopicPartition, int] = {}
        # revoked since the last poll; some may have been taken again
        self._gone: Partitions = set()

    def tenures(self, partitions: Iterable[TopicPartition]) -> list[int | None]:
        """Return the number of each partition's current assignment, or None for an unassigned
        partition.

        A partition that is revoked and assigned again gets another number.
        """
        return [self._taken.get(each) for each in partitions]

    async def take(self, added: Partitions) -> None:
        """Add partitions to the assignment, and call `on_assigned`."""
        self.partitions = self.partitions | added
        self._taken |= dict.fromkeys(added, next(self._takes))
        self._changed(set(), added)
        await self.callbacks.call(self.listener.on_assigned, added)

    def will_go(self, partitions: Partitions) -> None:
        """Set the partitions that are about to be revoked."""
        if partitions != self.going:
            self.going = partitions
            self._changed(set(), set())

    async def revoke(self, partitions: Partitions) -> None:
        """Commit, call `on_revoked`, and remove partitions, before another member can have them."""
        if not partitions:
            return
        logger.info("%s: the member revokes %s", self._member, named(partitions))
        self.will_go(self.going | partitions)
        try:
            await self._before_revoking()
        except BaseException:
            self.will_go(self.going - partitions)  # they stay assigned
            raise
        try:
            await self.callbacks.call(self.listener.on_revoked, partitions)
        finally:
            self._drop(partitions)

    async def lose(self) -> None:
        """Remove all partitions without a commit, because other members may have them already."""
        lost = self.partitions
        if lost:
            logger.warning(
                "%s: the group continued without this member, which lost %s",
                self._member,
                named(lost),
            )
            await self._lose(lost)

    async def forget(self, partitions: Partitions) -> None:
        """Remove partitions of deleted topics without a commit, and call `on_lost`.

        Committed offsets would count for the new topic of the same name.
        """
        if partitions:
            logger.warning(
                "%s: topics were deleted and created again, so the member lost %s",
                self._member,
                named(partitions),
            )
            await self._lose(partitions)

    async def _lose(self, lost: Partitions) -> None:
        self._drop(lost)
        await self.callbacks.call(self.listener.on_lost or self.listener.on_revoked, lost)

    def polled(self) -> None:
        """Forget which partitions were revoked since the last poll, because a new poll is under
        way.
        """
        self._gone = set()

    def refuse_others(
        self, partitions: Iterable[TopicPartition], *, is_another_generation: bool
    ) -> None:
        """Raise CommitFailed if one of the partitions was revoked since the last poll.

        The coordinator accepts offsets of any partition from a member, so they would overwrite the
        offsets of the new owner. is_another_generation: the group has rebalanced since the last
        poll, so the member must own all the partitions.
        """
        asked = set(partitions)
        gone = asked & self._gone
        if is_another_generation:
            gone |= asked - self.partitions
        if gone:
            raise CommitFailed(
                f"the offsets were not committed: since the last poll the group has given "
                f"{named(gone)} to others",
                number=ErrorCode.REBALANCE_IN_PROGRESS,
            )

    def _drop(self, partitions: Partitions) -> None:
        self.partitions = self.partitions - partitions
        self.going = self.going - partitions
        self._gone |= partitions
        for each in partitions:
            self._taken.pop(each, None)
        self._changed(partitions, set())


def named(partitions: Partitions) -> str:
    """Return a text for the log, with the number of partitions and the names of the first ones."""
    first = ", ".join(f"{topic}/{index}" for topic, index in sorted(partitions)[:NAMED_MAX])
    return f"{len(partitions)} partitions ({first}{', ...' * (len(partitions) > NAMED_MAX)})"
