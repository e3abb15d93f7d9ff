"""The requests of a member of the classic protocol to its coordinator.

member.py has the state of the member.
"""

from collections.abc import Mapping
from typing import Any

from ...wire.consumer_protocol import NO_GENERATION, PROTOCOL_TYPE
from ...wire.errors import ErrorCode, KafkaError
from ...wire.identifiers import TopicPartition
from ..cluster_view import ClusterView
from ..connection import BrokerConnection
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..security.permissions import error_about
from ..settings import Settings
from .coordinator_requests import LEAVE_TIMEOUT_MS, CoordinatorRequests
from .reactions import GroupRequest

LEAVE_GROUP = 13
JOIN_EXTRA_TIMEOUT_MS = 5_000  # beyond the rebalance timeout
GONE_ON = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class GroupRequests(CoordinatorRequests):
    """The requests of one member of a classic group, with its member id and generation."""

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        super().__init__(view, settings)
        self.member_id, self.generation = "", NO_GENERATION
        self._joined = self.member_id, self.generation

    @property
    def metadata(self) -> GroupMetadata:
        """Return the membership under which the last records were read, for fencing by KIP-447.

        After the group has removed the member, the current generation is -1 and the member id
        empty, which the broker would not check.
        """
        member_id, generation = self._joined
        instance_id = self._settings.group_instance_id
        return GroupMetadata(self.group_id, generation, member_id, instance_id)

    def joined(self) -> None:
        """Store the current member id and generation as those of the assigned partitions."""
        self._joined = self.member_id, self.generation

    def reset_generation(self, code: int = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Forget the generation.

        After any error but ILLEGAL_GENERATION also forget the member id.
        """
        self.generation = NO_GENERATION
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""

    async def join(self, protocols: list[tuple[str, bytes]]) -> Any:
        """Send JoinGroup, and return the answer when all members have joined, or an answer with an
        error.
        """
        values = {
            "group_id": self.group_id,
            "session_timeout": self._settings.session_timeout_ms,
            "rebalance_timeout": self._settings.max_poll_interval_ms,
            "member_id": self.member_id,
            "group_instance_id": self._settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": name, "metadata": data} for name, data in protocols],
            "reason": "",
        }
        return await self._call(GroupRequest.JOIN.value, values, self._join_limit_ms)

    async def sync(self, protocol: str, assignments: Mapping[str, bytes]) -> Any:
        """Send SyncGroup, and return the answer when the leader has sent the assignments."""
        values = {
            **self._now,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": protocol,
            "assignments": [{"member_id": m, "assignment": a} for m, a in assignments.items()],
        }
        return await self._call(GroupRequest.SYNC.value, values, self._join_limit_ms)

    @property
    def _join_limit_ms(self) -> int:
        return self._settings.max_poll_interval_ms + JOIN_EXTRA_TIMEOUT_MS

    async def heartbeat(self, limit_ms: int) -> KafkaError | None:
        """Send a heartbeat. Return its error, or None."""
        try:
            answer = await self._call(GroupRequest.HEARTBEAT.value, self._now, limit_ms)
        except KafkaError as problem:
            return problem
        code = int(answer.error_code)
        return error_about(code, self.group_id, "Read") if code else None

    async def leave(self) -> None:
        """Leave the group, or let the session time out if the coordinator cannot be reached."""
        if not self.member_id:
            return
        member = {"member_id": self.member_id, "reason": "the consumer is closing"}
        values = {"group_id": self.group_id, "members": [member]}
        self.reset_generation()
        try:
            await self._call(LEAVE_GROUP, values, LEAVE_TIMEOUT_MS)
        except KafkaError:
            self.mark_coordinator_unknown()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, by_itself: bool = False
    ) -> None:
        """Commit offsets, or raise CommitFailed if the group rebalances or has removed this member.

        by_itself: an automatic commit, which fails immediately for deleted topics.
        """
        joined = self._joined  # the membership that read them; see `metadata`

        async def ask(connection: BrokerConnection) -> tuple[int, None]:
            code = await self._commit_once(connection, joined, offsets)
            if code in GONE_ON and self.member_id and joined != (self.member_id, self.generation):
                code = ErrorCode.REBALANCE_IN_PROGRESS  # it waited behind a join of this member
            return int(code), None

        await self._until_committed(ask, by_itself=by_itself)

    async def committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, after open transactions have ended.

        Partitions without a committed offset are left out.
        """
        return await self._committed(partitions)

    @property
    def _now(self) -> dict[str, Any]:
        return self._identity("generation_id", (self.member_id, self.generation))
