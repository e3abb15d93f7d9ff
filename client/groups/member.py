"""A member of a classic consumer group, which joins, syncs, heartbeats and leaves.

It implements KIP-62, 345, 394 and 429. This file follows some rules. A join begins inside the
consumer's poll (`polled_member`), and only heartbeats run in a task. The heartbeats stop when the
application has not polled for max.poll.interval.ms. Then the group rebalances without the member,
immediately or, for a static member, after the session timeout.

Eager assignors revoke all partitions before a join. With cooperative-sticky alone, a member revokes
only the partitions that the new assignment lacks, and then joins again. Partitions are *lost* when
the group has rebalanced without the member, because other members may have them already.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_sticky,
    encode_subscription,
)
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from ..cluster_view import ClusterSnapshot, ClusterView
from ..failures import ClientClosed
from ..retries import Backoff, now_ms
from ..security.permissions import error_about
from ..settings import Settings
from .assignors import COOPERATIVE, assign
from .holding import Holding, Partitions, RebalanceListener, named
from .polled_member import PolledMember
from .reactions import GroupReaction, GroupRequest, group_reaction_to
from .requests import GroupRequests

logger = logging.getLogger(__name__)
FOREVER_MS = 1 << 60
QUICK_BEAT_MS = 200
_R = GroupReaction


class GroupMember(PolledMember[GroupRequests]):
    """A member of a classic group.

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
        self.holding = Holding(self, changed, before_revoking)
        self.requests = GroupRequests(view, settings)
        self.topics: tuple[str, ...] = ()
        self._had: tuple[TopicPartition, ...] = ()  # before they were revoked to join
        # the partition counts that it assigned as the leader
        self._led_counts: dict[str, int] | None = None
        self._seen: ClusterSnapshot | None = None
        self._must_join = self._is_lost = False
        names = settings.partition_assignment_strategy
        self._is_cooperative = all(name == COOPERATIVE for name in names)

    def __repr__(self) -> str:
        requests = self.requests
        name = requests.member_id or "a new member"
        return f"group {requests.group_id}, {name}, generation {requests.generation}"

    @property
    def owned(self) -> Partitions:
        """The partitions that the member reads."""
        return self.holding.partitions

    @property
    def is_subscribed(self) -> bool:
        """Whether the member is subscribed, so that polls have to drive its membership."""
        return bool(self.topics)

    def subscribe(
        self, topics: tuple[str, ...], pattern: str | None, listener: RebalanceListener
    ) -> None:
        """Subscribe to topics from the next poll on, or raise ValueError for a pattern."""
        if pattern is not None:
            raise ValueError("patterns are for group.protocol=consumer: the broker finds topics")
        self.topics, self.holding.listener, self._must_join = topics, listener, True

    def _is_due(self) -> bool:
        return self._must_join or self._topics_have_grown()

    @property
    def _reads_on(self) -> bool:
        return self._is_cooperative and bool(self.owned)

    def refused(self, code: int) -> None:
        """Rejoin after a refused commit, because the group rebalances or has removed the member."""
        is_lost = group_reaction_to(GroupRequest.COMMIT, code) is _R.RESET
        is_lost = is_lost and not self._settling.is_running  # a join finds that out itself
        if is_lost:
            self.requests.reset_generation(code)
        if self.topics:
            self._rejoin(is_lost=is_lost)

    def _rejoin(self, *, is_lost: bool) -> None:
        self._must_join = True
        self._is_lost |= is_lost

    async def close(self) -> None:
        """Revoke all partitions and leave. A static member does not leave, since it may return."""
        await self._settling.stop()
        await self._heartbeats.stop()
        await self._give_up(everything=True)
        if self._settings.group_instance_id is None:
            await self.requests.leave()
        self.holding.callbacks.raise_problem()

    # --- joining

    def _topics_have_grown(self) -> bool:
        """Return whether the leader must assign again, since the number of partitions changed."""
        snapshot = self._view.snapshot
        if self._led_counts is None or snapshot is self._seen:
            return False
        self._seen = snapshot
        now = self._counts(set(self._led_counts) | set(self.topics))
        return any(count != self._led_counts.get(topic, 0) for topic, count in now.items())

    def _counts(self, topics: set[str]) -> dict[str, int]:
        counts = {topic: len(self._view.snapshot.partitions_of(topic)) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    async def _settle(self) -> None:
        """Join until the member belongs to the newest generation."""
        self._must_join = True
        await self._heartbeats.stop()
        await self._give_up()
        backoff = Backoff(20, 500, FOREVER_MS)
        while self._must_join:
            await self._heartbeats.stop()
            try:
                await self._join()
            except KafkaError as problem:
                if not problem.retriable:
                    raise
                logger.info("%s: the member joins again after an error: %s", self, problem)
                await backoff.pause()

    async def _give_up(self, *, everything: bool = False) -> None:
        """Remove partitions before a join, or all of them at the close (`everything`).

        Partitions are lost if the group has removed the member. Else they are revoked, with a
        cooperative assignor only those of topics that the member has unsubscribed from.
        """
        if self._is_lost:
            await self._lose()
        elif everything or not self._is_cooperative:
            await self.holding.revoke(set(self.owned))
        else:
            await self.holding.revoke({p for p in self.owned if p[0] not in self.topics})

    async def _join(self) -> None:
        requests = self.requests
        answer = await requests.join(
            [
                (name, encode_subscription(self._subscription(name)))
                for name in self._settings.partition_assignment_strategy
            ]
        )
        code = int(answer.error_code)
        if group_reaction_to(GroupRequest.JOIN, code) is _R.TAKE_MEMBER_ID:
            requests.member_id = answer.member_id
            return
        if not await self._accept(GroupRequest.JOIN, code):
            return
        requests.member_id, requests.generation = answer.member_id, answer.generation_id
        self._led_counts = None
        assignments: dict[str, bytes] = {}
        if answer.leader == requests.member_id and not getattr(answer, "skip_assignment", False):
            assignments = await self._lead(answer)
        answer = await requests.sync(answer.protocol_name, assignments)
        if not await self._accept(GroupRequest.SYNC, int(answer.error_code)):
            return
        self._must_join = False
        self._heartbeats.begin(self._beat)
        await self._take(set(decode_assignment(bytes(answer.assignment))))

    def _subscription(self, assignor: str) -> Subscription:
        owned = tuple(sorted(self.owned)) if self._is_cooperative else ()
        generation = self.requests.generation
        user_data = encode_sticky(self._had, generation) if assignor == "sticky" else b""
        return Subscription(self.topics, owned, generation, user_data)

    async def _lead(self, answer: Any) -> dict[str, bytes]:
        members = {
            m.member_id: decode_subscription(
                bytes(m.metadata), getattr(m, "group_instance_id", None)
            )
            for m in answer.members
        }
        topics = {topic for s in members.values() for topic in s.topics}
        await self._view.refresh(topics)
        self._seen = self._view.snapshot
        self._led_counts = self._counts(topics)
        given = assign(answer.protocol_name, members, self._led_counts)
        return {member_id: encode_assignment(given[member_id]) for member_id in given}

    async def _accept(self, request: GroupRequest, code: int) -> bool:
        """Return whether a request succeeded. Return False if the member must join again.

        Raises errors that a new join does not resolve.
        """
        reaction = group_reaction_to(request, code)
        if reaction is _R.DONE:
            return True
        if reaction is _R.RESET:
            await self._lose()
            self.requests.reset_generation(code)
            return False
        if reaction is _R.REJOIN:
            return False
        if reaction is _R.FIND_COORDINATOR:
            self.requests.mark_coordinator_unknown()
        problem = error_about(code, self.requests.group_id, "Read")
        if not problem.retriable:
            self._problem = problem
        raise problem

    async def _take(self, assignment: set[TopicPartition]) -> None:
        self.requests.joined()
        logger.info("%s: the member is assigned %s", self, named(assignment))
        if revoked := self.owned - assignment:
            await self.holding.revoke(revoked)
            self._must_join = True  # join again, so that other members get them
        self._had = tuple(sorted(assignment))
        await self.holding.take(assignment - self.owned)

    async def _lose(self) -> None:
        self._is_lost = False
        await self.holding.lose()

    # --- heartbeats

    async def _beat(self) -> None:
        every_ms = pause_ms = self._settings.heartbeat_interval_ms
        answered_ms = now_ms()
        while True:
            await asyncio.sleep(pause_ms / 1000)
            if now_ms() - self._polled_ms > self._settings.max_poll_interval_ms:
                if self._settings.group_instance_id is not None:
                    # a static member only stops heartbeats: its session may end (KIP-345)
                    continue
                logger.warning(
                    "%s: the application did not poll within "
                    "max.poll.interval.ms=%d, so the member leaves the group",
                    self,
                    self._settings.max_poll_interval_ms,
                )
                await self.requests.leave()
                self._rejoin(is_lost=True)
                return
            problem = await self.requests.heartbeat(max(every_ms, 1_000))
            code = 0 if problem is None else problem.number
            reaction = group_reaction_to(GroupRequest.HEARTBEAT, code)
            if reaction is _R.DONE:
                answered_ms, pause_ms = now_ms(), every_ms
                continue
            if reaction is _R.REJOIN:
                self._rejoin(is_lost=False)
                answered_ms = now_ms()
                continue
            if reaction is _R.RESET:
                self.requests.reset_generation(code)
                self._rejoin(is_lost=True)
                return
            if reaction is _R.FAIL or isinstance(problem, ClientClosed):
                self._problem = problem
                return
            self.requests.mark_coordinator_unknown()
            if now_ms() - answered_ms > self._settings.session_timeout_ms:
                self._rejoin(is_lost=True)
                return
            pause_ms = min(every_ms, QUICK_BEAT_MS)
