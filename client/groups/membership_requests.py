"""The requests of a member of a newer group (KIP-848), for heartbeats and for offsets.

A commit carries the member's epoch at the time of the call, because partitions revoked since belong
to the next owner (KIP-1251). If the coordinator refuses that epoch as stale, the commit is repeated
with the newer epoch of the next heartbeat, provided that the member has kept all the partitions.

Offsets of owned partitions name topics by id if the broker supports OffsetCommit 10. A topic
created in place of a deleted topic then does not get the old offsets.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...wire.errors import ErrorCode, KafkaError, UnsupportedVersion, error_for
from ...wire.identifiers import TopicPartition
from ..cluster_view import ClusterView
from ..connection import BrokerConnection
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..security.permissions import error_about
from ..settings import Settings
from .coordinator_requests import LEAVE_TIMEOUT_MS, CoordinatorRequests
from .holding import Holding
from .membership import NOWHERE, MemberHeartbeat, Membership, MembershipState, Places

CONSUMER_GROUP_HEARTBEAT, PATTERNS_FROM = 68, 1
NOT_SERVED = "groups of group.protocol=consumer (KIP-848) are not served here; use classic"
NO_PATTERNS = "this cluster takes no patterns (ConsumerGroupHeartbeat 1); name the topics"
OF_CLASSIC = "it is a group of group.protocol=classic, and has members"
_HEARTBEATS_TELL = (
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class MembershipRequests(CoordinatorRequests):
    """The requests of a member. `next_answer` returns after the next heartbeat was answered.

    topic_ids: a function that returns the topic ids of the member's partitions.
    """

    def __init__(
        self,
        view: ClusterView,
        settings: Settings,
        membership: Membership,
        holding: Holding,
        next_answer: Callable[[], Awaitable[None]],
        topic_ids: Callable[[], Mapping[TopicPartition, bytes]],
    ) -> None:
        super().__init__(view, settings)
        self._membership, self._holding, self._next_answer = membership, holding, next_answer
        self._topic_ids = topic_ids

    @property
    def metadata(self) -> GroupMetadata:
        """The group metadata for offsets in transactions, with the newest epoch."""
        member_id, epoch = self._membership.identity
        instance_id = self._settings.group_instance_id
        return GroupMetadata(self.group_id, epoch, member_id, instance_id, self._topic_ids())

    async def heartbeat(
        self, heartbeat: MemberHeartbeat, limit_ms: int
    ) -> tuple[int, int, Places | None]:
        """Send a heartbeat. Return epoch, interval in ms and assignment, or raise its error."""
        connection = await self._coordinator()
        pattern = heartbeat.fields.get("subscribed_topic_regex")
        try:
            version = connection.version_for(CONSUMER_GROUP_HEARTBEAT)
        except UnsupportedVersion:
            raise UnsupportedVersion(NOT_SERVED) from None
        if pattern is not None and version < PATTERNS_FROM:
            raise UnsupportedVersion(NO_PATTERNS)
        values = {
            "group_id": self.group_id,
            "member_id": self._membership.member_id,
            "member_epoch": heartbeat.member_epoch,
            "topic_partitions": _listed(heartbeat.owned),
            **heartbeat.fields,
        }
        answer = await self._call(CONSUMER_GROUP_HEARTBEAT, values, limit_ms)
        if answer.error_code:
            raise self._problem(int(answer.error_code), answer.error_message)
        return answer.member_epoch, answer.heartbeat_interval, _places(answer.assignment)

    def _problem(self, code: int, message: str | None) -> KafkaError:
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return error_about(code, self.group_id, "Read")
        words = message or str(error_for(code))
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            words = f"group {self.group_id}: {OF_CLASSIC} ({words})"
        return error_for(code, words)

    async def leave(self, heartbeat: MemberHeartbeat) -> None:
        """Leave the group, or let the session time out if the coordinator cannot be reached."""
        try:
            await self.heartbeat(heartbeat, LEAVE_TIMEOUT_MS)
        except KafkaError:
            self.mark_coordinator_unknown()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, by_itself: bool = False
    ) -> None:
        """Commit offsets under the member's current epoch, with topics named by their ids.

        by_itself: an automatic commit, which fails immediately for deleted topics.
        """
        identity, tenures = self._membership.identity, self._holding.tenures(offsets)
        topic_ids = self._topic_ids()

        async def ask(connection: BrokerConnection) -> tuple[int, None]:
            nonlocal identity
            code = await self._commit_once(connection, identity, offsets, topic_ids)
            if code == ErrorCode.STALE_MEMBER_EPOCH:
                await self._next_answer()
                is_fenced = self._membership.state is MembershipState.FENCED
                if is_fenced or tenures != self._holding.tenures(offsets):
                    return int(ErrorCode.FENCED_MEMBER_EPOCH), None
                identity = self._membership.identity
            return code, None

        await self._until_committed(ask, by_itself=by_itself)

    async def committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, after open transactions have ended.

        Partitions without a committed offset are left out.
        """

        async def refused(code: int) -> None:
            if code in _HEARTBEATS_TELL:
                await self._next_answer()

        return await self._committed(partitions, self._asking, refused)

    def _asking(self) -> tuple[str, int]:
        """Return the member id and epoch for OffsetFetch.

        Outside of the group they are empty and -1.
        """
        membership = self._membership
        return membership.identity if membership.is_within else ("", -1)


def _listed(owned: Places | None) -> list[dict[str, Any]] | None:
    if owned is None:
        return None
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [{"topic_id": key, "partitions": listed} for key, listed in topics.items()]


def _places(assignment: Any) -> Places | None:
    if assignment is None:
        return None
    listed = assignment.topic_partitions
    return NOWHERE.union(*([(t.topic_id, p) for p in t.partitions] for t in listed))
