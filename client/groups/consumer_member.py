"""A member of a group of the newer protocol (KIP-848), which executes `Membership`.

This file follows some rules. Heartbeats run in a task, one at a time, at the coordinator's
interval. Assignments change inside polls (`polled_member`). Revocations come first, with a commit
and the callback `on_revoked`. A heartbeat then reports the revocation, after which other members
may get the partitions. A poll takes the target assignment at its beginning, and returns no records
of partitions to revoke. A newer target assignment waits for the next poll. Partitions are *lost*
when the group has fenced the member, or when their topic was created again. The offsets of lost
partitions are not committed. A fenced member joins again.

A member that does not poll for max.poll.interval.ms leaves, and a static member leaves temporarily
(epoch -2).
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from ..cluster_view import ClusterView
from ..fetch.fetcher import wait_for
from ..retries import Backoff, now_ms
from ..settings import Settings
from .holding import Holding, Partitions, RebalanceListener, named
from .membership import MemberHeartbeat, Membership, MembershipState, Place, Places
from .membership_requests import MembershipRequests
from .polled_member import PolledMember
from .reactions import GroupReaction, GroupRequest, group_reaction_to

logger = logging.getLogger(__name__)
ANSWER_MS_MIN = 1_000  # for one heartbeat
FOREVER_MS = 1 << 60
_S = MembershipState
_UNSETTLED = frozenset({_S.JOINING, _S.RELEASING, _S.FENCED, _S.RECONCILING, _S.LEAVING})


class HeartbeatWatcher(Protocol):
    """An observer of heartbeats. Epochs have the values of the protocol (0 to join)."""

    def says(self, epoch: int) -> None:
        """Observe a heartbeat that is about to be sent."""
        ...

    def hears(self, epoch: int, *, is_given: bool, is_settled: bool) -> None:
        """Observe an answer to a heartbeat. Answers with an error are not reported.

        is_given: the answer has an assignment. is_settled: the member is not reconciling
        its partitions with its target assignment.
        """
        ...


class ConsumerGroupMember(PolledMember[MembershipRequests]):
    """A member of a consumer group (KIP-848).

    `changed` and `before_revoking` have the same meaning as for `Holding`.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        changed: Callable[[Partitions, Partitions], None],
        before_revoking: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(settings)
        self._view = view
        self._membership = Membership(
            str(uuid.uuid4()),
            settings.group_instance_id,
            settings.max_poll_interval_ms,
            settings.group_remote_assignor,
            settings.client_rack,
        )
        self.holding = Holding(self, changed, before_revoking)
        self.requests = MembershipRequests(
            view, settings, self._membership, self.holding, self._next_answer, self._topic_ids
        )
        self._names: dict[Place, TopicPartition] = {}  # of the owned partitions
        self._seen: Places | None = None  # the target that a poll saw
        self._due, self._answered = asyncio.Event(), asyncio.Event()
        self.watcher: HeartbeatWatcher | None = None

    def __repr__(self) -> str:
        group_id, member = self.requests.group_id, self._membership
        return f"group {group_id}, {member.member_id}, epoch {member.epoch}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics to which the member has subscribed by name."""
        return self._membership.names

    @property
    def is_subscribed(self) -> bool:
        """Whether the member is subscribed, so that polls have to drive its membership."""
        return self._membership.wants or self._membership.state is not _S.OUTSIDE

    def subscribe(
        self, topics: tuple[str, ...], pattern: str | None, listener: RebalanceListener
    ) -> None:
        """Subscribe from the next heartbeat on to topics, and to those matching a pattern (RE2)."""
        self.holding.listener = listener
        self._membership.subscribe(topics, pattern)
        self._due.set()

    async def poll(self, deadline_ms: int) -> bool:
        """Start heartbeats at the first poll, and do work that is due.

        Return False at the deadline.
        """
        if self._membership.state is not _S.OUTSIDE:
            self._heartbeats.begin(self._beat)
        return await super().poll(deadline_ms)

    def _is_due(self) -> bool:
        member = self._membership
        if member.state is _S.RECONCILING:
            self._seen = member.target
            self.holding.will_go({self._names[place] for place in member.owned - self._seen})
        return member.state in _UNSETTLED

    @property
    def _reads_on(self) -> bool:
        return bool(self.holding.partitions) and self._membership.state is not _S.FENCED

    def refused(self, code: int) -> None:
        """Send a heartbeat after a refused commit, because its answer has the reason."""
        self._due.set()

    async def close(self) -> None:
        """Revoke all partitions and leave. A static member leaves temporarily, as it may return."""
        await self._settling.stop()
        try:
            await self._give_up_everything()
        finally:
            await self._heartbeats.stop()
            await self._leave()
        self.holding.callbacks.raise_problem()

    def _topic_ids(self) -> dict[TopicPartition, bytes]:
        """Return the topic ids of the member's partitions."""
        held = self.holding.partitions
        return {key: place[0] for place, key in self._names.items() if key in held}

    async def _leave(self) -> None:
        heartbeat = self._membership.leave()
        if heartbeat is not None:
            await self.requests.leave(heartbeat)

    async def _give_up_everything(self) -> None:
        if self._membership.state in (_S.FENCED, _S.FAILED):
            await self.holding.lose()
        else:
            await self.holding.revoke(set(self.holding.partitions))

    # --- changes inside polls

    async def _settle(self) -> None:
        """Revoke and take partitions and rejoin, until nothing is left to do."""
        member = self._membership
        while True:
            match member.state:
                case _S.FENCED:
                    await self.holding.lose()
                    member.given_up()
                    self._due.set()
                case _S.JOINING | _S.RELEASING:
                    await wait_for(self._answered, ANSWER_MS_MIN)
                case _S.RECONCILING if (target := self._due_target()) is not None:
                    await self._reconcile(target)
                case _S.LEAVING:
                    await self._give_up_everything()
                    await self._leave()
                    member.left()
                    self._due.set()
                case _S.FAILED if self._problem is not None:
                    await self.holding.lose()
                    raise self._problem
                case _:
                    return

    def _due_target(self) -> Places | None:
        """Return the target that the poll saw at its beginning.

        Return the newest target if the member owns no partitions.
        """
        seen, self._seen = self._seen, None
        return seen if self.holding.partitions else self._membership.target

    async def _reconcile(self, target: Places) -> None:
        """Revoke owned partitions that `target` lacks, and take the partitions that it adds.

        A partition is taken only when the name of its topic is known.
        """
        member = self._membership
        gone = member.owned - target
        names = await self._names_of(target)
        await self._ask_for_topics_that_go(gone, target)
        if member.state is not _S.RECONCILING:
            return
        wanted = {place: (names[place[0]], place[1]) for place in target if place[0] in names}
        logger.info("%s: the member is assigned %s", self, named(set(wanted.values())))
        await self._give_up(gone)
        if member.state is not _S.RECONCILING:
            return  # fenced meanwhile, or leaving
        if member.may_take:
            await self._take(wanted)
        member.reconciled(frozenset(self._names), target)
        if member.is_urgent:
            self._due.set()

    async def _give_up(self, places: Places) -> None:
        """Commit and revoke partitions.

        Partitions of a recreated topic are lost without a commit.
        """
        ids = self._view.snapshot.topic_ids
        going = {self._names[place]: place[0] for place in places}
        anew = {key for key, topic_id in going.items() if ids.get(key[0], topic_id) != topic_id}
        await self.holding.forget(anew)
        await self.holding.revoke(going.keys() - anew)
        held = self.holding.partitions
        self._names = {place: key for place, key in self._names.items() if key in held}

    async def _take(self, wanted: dict[Place, TopicPartition]) -> None:
        """Take the target partitions that the member does not own yet.

        A partition of a recreated topic is taken only after the old topic's partition was released.
        """
        places = (wanted.keys() & self._membership.target) - self._names.keys()
        held = self.holding.partitions
        added = {place: wanted[place] for place in places if wanted[place] not in held}
        self._names |= added
        if added:
            self._membership.takes(frozenset(added))
            await self.holding.take(set(added.values()))

    async def _ask_for_topics_that_go(self, gone: Places, target: Places) -> None:
        """Refresh topics of revoked partitions, which may have been deleted and created again."""
        stay = {topic_id for topic_id, _ in target}
        names = {self._names[place][0] for place in gone if place[0] not in stay}
        if names:
            with contextlib.suppress(KafkaError):
                await self._view.refresh(names)

    async def _names_of(self, places: Places) -> dict[bytes, str]:
        """Return topic names by id, as far as brokers know them."""
        wanted = {topic_id for topic_id, _ in places}
        names = self._known_names(wanted)
        if len(names) < len(wanted):
            try:
                await self._view.refresh_by_id(wanted - names.keys())
            except KafkaError as problem:
                logger.info(
                    "%s: the metadata of assigned topics is not available yet: %s", self, problem
                )
            names = self._known_names(wanted)
        return names

    def _known_names(self, wanted: set[bytes]) -> dict[bytes, str]:
        known = self._view.snapshot.topic_ids.items()
        return {topic_id: name for name, topic_id in known if topic_id in wanted}

    # --- heartbeats

    async def _beat(self) -> None:
        member = self._membership
        backoff = self._new_backoff()
        while member.state is not _S.FAILED:
            self._due.clear()
            left_ms = self._polled_ms + self._settings.max_poll_interval_ms - now_ms()
            if left_ms <= 0 and (heartbeat := member.too_slow()) is not None:
                logger.warning(
                    "%s: the application did not poll within max.poll.interval.ms, so "
                    "the member leaves the group",
                    self,
                )
                await self.requests.leave(heartbeat)
            heartbeat = member.heartbeat()
            if heartbeat is None:
                await wait_for(self._due, member.interval_ms)
                continue
            if self.watcher is not None:
                self.watcher.says(heartbeat.member_epoch)
            try:
                limit_ms = max(member.interval_ms, ANSWER_MS_MIN)
                answer = await self.requests.heartbeat(heartbeat, limit_ms)
            except KafkaError as problem:
                self._refused(heartbeat, problem)
                await backoff.pause()
                continue
            backoff = self._new_backoff()
            member.answered(heartbeat, *answer)
            if self.watcher is not None:
                is_settled = member.state is not _S.RECONCILING
                self.watcher.hears(answer[0], is_given=answer[2] is not None, is_settled=is_settled)
            self._tell()
            if not member.is_urgent:
                await wait_for(self._due, min(member.interval_ms, max(left_ms, 1)))

    def _refused(self, heartbeat: MemberHeartbeat, problem: KafkaError) -> None:
        member, code = self._membership, problem.number
        if group_reaction_to(GroupRequest.HEARTBEAT, code) is GroupReaction.FIND_COORDINATOR:
            self.requests.mark_coordinator_unknown()
        member.refused(heartbeat, code, is_retriable=problem.retriable)
        logger.info("%s: the member is %s after an error: %s", self, member.state.name, problem)
        if member.state is _S.FAILED:
            self._problem = problem
        self._tell()

    def _tell(self) -> None:
        """Wake the tasks that wait for an answer."""
        self._answered.set()
        self._answered = asyncio.Event()

    async def _next_answer(self) -> None:
        """Send a heartbeat soon, and return after the next answer or a timeout.

        Outside of the group, return at once.
        """
        if self._membership.is_within:
            self._due.set()
            await wait_for(self._answered, ANSWER_MS_MIN)

    def _new_backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, FOREVER_MS)
