"""Requests about offsets to a group's coordinator, for members of both group protocols.

These requests use a connection of their own, since a join waits at the broker for other members.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from ...wire.errors import ErrorCode, KafkaError
from ...wire.identifiers import TopicPartition
from ..by_topic import COMMIT_BY_NAME_NEWEST, committed_by_topic
from ..cluster_view import ClusterView
from ..committed_offsets import fetch_committed
from ..connection import BrokerConnection
from ..coordinator_lookup import find_coordinator
from ..failures import CommitFailed
from ..group_metadata import GroupMetadata, OffsetAndMetadata
from ..retries import Backoff, now_ms, until_decided
from ..security.permissions import error_about
from ..settings import Settings
from .reactions import GroupReaction, GroupRequest, group_reaction_to

LEAVE_TIMEOUT_MS = 2_000
NOBODY: tuple[str, int] = "", -1  # the identity of a non-member
_TOPIC_IS_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
T = TypeVar("T")


class CoordinatorRequests:
    """Requests to the coordinator of one group.

    The coordinator is looked up again after it has moved.
    """

    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self._view, self._settings = view, settings
        self.group_id: str = settings.group_id
        self._coordinator_id: int | None = None
        self.commits_sent = 0  # OffsetCommit requests, repeated ones too

    @property
    def metadata(self) -> GroupMetadata:
        """Return the group metadata that goes with offsets committed in a transaction."""
        raise NotImplementedError

    def mark_coordinator_unknown(self) -> None:
        self._coordinator_id = None

    async def _commit_once(
        self,
        connection: BrokerConnection,
        identity: tuple[str, int],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[TopicPartition, bytes] = MappingProxyType({}),
    ) -> int:
        """Send OffsetCommit once. Return the first error code, or 0.

        identity: the member id with the generation or epoch. topic_ids: replace names if all ids
        are known and the broker supports ids.
        """
        self.commits_sent += 1
        values = self._identity("generation_id_or_member_epoch", identity)
        commit = GroupRequest.COMMIT.value
        is_by_id = offsets.keys() <= topic_ids.keys()
        newest = connection.version_for(commit) if is_by_id else COMMIT_BY_NAME_NEWEST
        is_by_id &= newest > COMMIT_BY_NAME_NEWEST
        values["topics"] = committed_by_topic(offsets, topic_ids if is_by_id else None)
        answer = await connection.call(commit, values, newest=newest)
        codes = [int(p.error_code) for t in answer.topics for p in t.partitions]
        return next((code for code in codes if code), 0)

    async def _until_committed(
        self, ask: Callable[[BrokerConnection], Awaitable[tuple[int, None]]], *, by_itself: bool
    ) -> None:
        ends = _TOPIC_IS_GONE if by_itself else ()
        await self._until_decided(GroupRequest.COMMIT, ask, ends)

    async def _committed(
        self,
        partitions: list[TopicPartition],
        identity: Callable[[], tuple[str, int]] = lambda: NOBODY,
        refused: Callable[[int], Awaitable[None]] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, after open transactions have ended.

        Partitions without a committed offset are left out. `refused` is called with error codes.
        """

        async def ask(
            connection: BrokerConnection,
        ) -> tuple[int, dict[TopicPartition, OffsetAndMetadata]]:
            code, found = await fetch_committed(
                connection, self.group_id, partitions, stable=True, member=identity()
            )
            if code and refused is not None:
                await refused(code)
            return code, found

        return await self._until_decided(GroupRequest.FETCH_OFFSETS, ask)

    def _identity(self, generation_field: str, identity: tuple[str, int]) -> dict[str, Any]:
        member_id, generation = identity
        return {
            "group_id": self.group_id,
            generation_field: generation,
            "member_id": member_id,
            "group_instance_id": self._settings.group_instance_id,
        }

    async def _until_decided(
        self,
        request: GroupRequest,
        ask: Callable[[BrokerConnection], Awaitable[tuple[int, T]]],
        ends: tuple[int, ...] = (),
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
            elif reaction is GroupReaction.FAIL or problem.number in ends:
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
