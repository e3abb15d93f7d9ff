"""The requests of one group's member to its coordinator; flow and state are `member`'s.

Everything goes through one connection of its own, since a join waits at the broker for the others.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from ...wire.errors import ErrorCode, KafkaError
from ...wire.identifiers import TopicPartition
from ..by_topic import committed_by_topic
from ..cluster_view import ClusterView
from ..committed_offsets import fetch_committed
from ..connection import BrokerConnection
from ..coordinator_lookup import find_coordinator
from ..failures import CommitFailed
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..retries import Backoff, now_ms, until_decided
from ..security.permissions import error_about
from ..settings import Settings
from .protocol import NO_GENERATION, PROTOCOL_TYPE
from .reactions import GroupReaction, GroupRequest, group_reaction_to

LEAVE_GROUP, LEAVE_TIMEOUT_MS = 13, 2_000
JOIN_EXTRA_TIMEOUT_MS = 5_000  # beyond the rebalance timeout
GONE_ON = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
T = TypeVar("T")


class GroupRequests:
    """Holds what the coordinator knows the member by."""

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self._view, self._settings = view, settings
        self.group_id: str = settings.group_id
        self.member_id, self.generation = "", NO_GENERATION
        self._joined = self.member_id, self.generation
        self._coordinator_id: int | None = None
        self.commits_sent = 0  # OffsetCommit requests, repeated ones too

    @property
    def metadata(self) -> GroupMetadata:
        """The member of the generation that gave us what we read; KIP-447 fences by it.

        Not of now: a generation of -1 without a name is let pass, as an old client's.
        """
        member_id, generation = self._joined
        instance_id = self._settings.group_instance_id
        return GroupMetadata(self.group_id, generation, member_id, instance_id)

    def joined(self) -> None:
        """What is assigned is ours from now on."""
        self._joined = self.member_id, self.generation

    def reset_generation(self, code: int = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """The group has gone on without us; after ILLEGAL_GENERATION it still knows our name."""
        self.generation = NO_GENERATION
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""

    def mark_coordinator_unknown(self) -> None:
        self._coordinator_id = None

    async def join(self, protocols: list[tuple[str, bytes]]) -> Any:
        """JoinGroup's answer, when the others have joined too; its error is the caller's."""
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
        """SyncGroup's answer, when the leader has sent the assignments."""
        values = {
            **self._identity("generation_id"),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": protocol,
            "assignments": [{"member_id": m, "assignment": a} for m, a in assignments.items()],
        }
        return await self._call(GroupRequest.SYNC.value, values, self._join_limit_ms)

    @property
    def _join_limit_ms(self) -> int:
        return self._settings.max_poll_interval_ms + JOIN_EXTRA_TIMEOUT_MS

    async def heartbeat(self, limit_ms: int) -> KafkaError | None:
        """What a heartbeat met, whatever happened to it; None when all is well."""
        try:
            values = self._identity("generation_id")
            answer = await self._call(GroupRequest.HEARTBEAT.value, values, limit_ms)
        except KafkaError as problem:
            return problem
        code = int(answer.error_code)
        return error_about(code, self.group_id, "Read") if code else None

    async def leave(self) -> None:
        """Let the group know, if it can be reached; otherwise the session times out."""
        if not self.member_id:
            return
        member = {"member_id": self.member_id, "reason": "the consumer is closing"}
        values = {"group_id": self.group_id, "members": [member]}
        self.reset_generation()
        try:
            await self._call(LEAVE_GROUP, values, LEAVE_TIMEOUT_MS)
        except KafkaError:
            self.mark_coordinator_unknown()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit. Raises CommitFailed when the group has gone on without this member."""
        joined = self._joined  # who read them; see `metadata`
        values = {
            **self._identity("generation_id_or_member_epoch", joined),
            "topics": committed_by_topic(offsets),
        }

        async def ask(connection: BrokerConnection) -> tuple[int, None]:
            self.commits_sent += 1
            answer = await connection.call(GroupRequest.COMMIT.value, values)
            codes = [int(p.error_code) for t in answer.topics for p in t.partitions]
            code = next((code for code in codes if code), 0)
            if code in GONE_ON and self.member_id and joined != (self.member_id, self.generation):
                code = ErrorCode.REBALANCE_IN_PROGRESS  # it waited behind a join of ours
            return int(code), None

        await self._until_decided(GroupRequest.COMMIT, ask)

    async def committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets, those of open transactions waited for; only where there are some."""

        async def ask(
            connection: BrokerConnection,
        ) -> tuple[int, dict[TopicPartition, OffsetAndMetadata]]:
            return await fetch_committed(connection, self.group_id, partitions, stable=True)

        return await self._until_decided(GroupRequest.FETCH_OFFSETS, ask)

    def _identity(
        self, generation_field: str, identity: tuple[str, int] | None = None
    ) -> dict[str, Any]:
        member_id, generation = identity or (self.member_id, self.generation)
        return {
            "group_id": self.group_id,
            generation_field: generation,
            "member_id": member_id,
            "group_instance_id": self._settings.group_instance_id,
        }

    async def _until_decided(
        self, request: GroupRequest, ask: Callable[[BrokerConnection], Awaitable[tuple[int, T]]]
    ) -> T:
        async def attempt() -> tuple[KafkaError | None, T]:
            code, answer = await ask(await self._coordinator())
            return error_about(code, self._name_of(code), "Read") if code else None, answer

        def judge(problem: KafkaError) -> None:
            reaction = group_reaction_to(request, problem.number)
            if reaction is GroupReaction.FIND_COORDINATOR:
                self.mark_coordinator_unknown()
            elif reaction in (GroupReaction.REJOIN, GroupReaction.RESET):
                raise CommitFailed(
                    f"the offsets were not committed: {problem}", number=problem.number
                )
            elif reaction is GroupReaction.FAIL:
                raise problem

        backoff = Backoff(20, 500, now_ms() + self._settings.default_api_timeout_ms)
        name = f"{request.name.lower().replace('_', ' ')} of group {self.group_id}"
        return await until_decided(attempt, judge, backoff, name)

    def _name_of(self, code: int) -> str:
        return self.group_id if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else "NAME"

    async def _call(self, api_key: int, values: dict[str, Any], limit_ms: int) -> Any:
        try:
            connection = await self._coordinator()
            return await connection.call(api_key, values, timeout_ms=limit_ms)
        except KafkaError:
            self.mark_coordinator_unknown()
            raise

    async def _coordinator(self) -> BrokerConnection:
        if self._coordinator_id is None:
            self._coordinator_id = await find_coordinator(self._view, self.group_id)
        return await self._view.broker(self._coordinator_id, f"group {self.group_id}")
