"""What a member of a group has to read, of either protocol, and who hears when that changes."""

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
NAMED_MAX = 10  # partitions in a line of the log
Partitions = set[TopicPartition]


@dataclass(slots=True)
class RebalanceListener:
    """Callbacks of a program: functions, or coroutine functions, of a list of
    (topic, partition). Without `on_lost`, `on_revoked` is called with those, too."""

    on_assigned: Callable[[list[TopicPartition]], Any] | None = None
    on_revoked: Callable[[list[TopicPartition]], Any] | None = None
    on_lost: Callable[[list[TopicPartition]], Any] | None = None


class Holding:
    """The partitions of a member. `changed(gone, added)` is called when some go and come;
    `before_revoking` is awaited before they are given up (the consumer commits).

    member: how the log names it.
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
        self.going: Partitions = set()  # about to be given up: a poll gives out nothing of them
        self._takes = itertools.count(1)
        self._taken: dict[TopicPartition, int] = {}
        self._gone: Partitions = set()  # since the last poll, some perhaps taken again

    def tenures(self, partitions: Iterable[TopicPartition]) -> list[int | None]:
        """Return which of its takes gave it these; None for what it does not have."""
        return [self._taken.get(each) for each in partitions]

    async def take(self, added: Partitions) -> None:
        """These are its own from now on."""
        self.partitions = self.partitions | added
        self._taken |= dict.fromkeys(added, next(self._takes))
        self._changed(set(), added)
        await self.callbacks.call(self.listener.on_assigned, added)

    def will_go(self, partitions: Partitions) -> None:
        """These, and no others, are about to be given up."""
        if partitions != self.going:
            self.going = partitions
            self._changed(set(), set())

    async def revoke(self, partitions: Partitions) -> None:
        """Give these up in good order: nobody else has them yet."""
        if not partitions:
            return
        logger.info("%s: gives up %s", self._member, named(partitions))
        self.will_go(self.going | partitions)
        try:
            await self._before_revoking()
        except BaseException:
            self.will_go(self.going - partitions)  # they are its own as before
            raise
        try:
            await self.callbacks.call(self.listener.on_revoked, partitions)
        finally:
            self._drop(partitions)

    async def lose(self) -> None:
        """Others may have them already: nothing of them may be committed."""
        lost = self.partitions
        if lost:
            logger.warning("%s: the group went on without it; lost %s", self._member, named(lost))
            await self._lose(lost)

    async def forget(self, partitions: Partitions) -> None:
        """These are of topics that are gone: their offsets would be another topic's."""
        if partitions:
            logger.warning("%s: topics made anew; lost %s", self._member, named(partitions))
            await self._lose(partitions)

    async def _lose(self, lost: Partitions) -> None:
        self._drop(lost)
        await self.callbacks.call(self.listener.on_lost or self.listener.on_revoked, lost)

    def polled(self) -> None:
        """A poll gives out records: what has gone before is not among them."""
        self._gone = set()

    def refuse_others(
        self, partitions: Iterable[TopicPartition], *, is_another_generation: bool
    ) -> None:
        """Raises CommitFailed for what is not its own any more, since the last poll.

        The coordinator takes offsets of any partition from a member, and these would stand in the
        place of those of the new owner.
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
    """How a line of the log names them: the first ones, and how many there are."""
    first = ", ".join(f"{topic}/{index}" for topic, index in sorted(partitions)[:NAMED_MAX])
    return f"{len(partitions)} partitions ({first}{', ...' * (len(partitions) > NAMED_MAX)})"
