"""Administration of consumer groups, with their members and committed offsets.

Requests about a group go to its coordinator, which is looked up again after it has moved. Lists are
gathered from all brokers, since each broker coordinates some groups. Errors are raised as in
`admin`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..wire.errors import ErrorCode, error_for
from ..wire.identifiers import TopicPartition
from .by_topic import COMMIT_BY_NAME_NEWEST, committed_by_topic, entries_by_topic
from .cluster_view import ClusterView, PartialList
from .committed_offsets import fetch_committed
from .connection import BrokerConnection
from .coordinator_lookup import find_coordinator, raise_code, raise_error_of
from .failures import UNREACHABLE
from .group_metadata import OffsetAndMetadata, with_metadata
from .groups.descriptions import (
    LIST_GROUPS,
    GroupDescription,
    GroupListing,
    described_group,
    listings,
)
from .groups.listed_groups import committed_of_groups, described_groups
from .security.permissions import error_about

OFFSET_COMMIT, NO_GENERATION = 8, -1
DELETE_GROUPS, OFFSET_DELETE = 42, 47
T = TypeVar("T")


class GroupAdmin:
    """An administration client for groups, with a view of the cluster."""

    def __init__(self, view: ClusterView, *, timeout_ms: int = 15_000) -> None:
        self.view, self.timeout_ms = view, timeout_ms

    async def list_groups(self, *, needs_all_brokers: bool = True) -> PartialList[GroupListing]:
        """List all groups of the cluster, sorted by name.

        An unreachable broker is asked until the deadline. Unless all brokers are needed, it is left
        out immediately, and the list's `errors` has its error.
        """

        async def attempt() -> PartialList[GroupListing]:
            skipped = () if needs_all_brokers else UNREACHABLE
            answers = await self.view.ask_all(LIST_GROUPS, {"states_filter": []}, skipped)
            found = {
                g.group_id: g for node_id, answer in answers for g in listings(answer, node_id)
            }
            return PartialList((found[group_id] for group_id in sorted(found)), answers.errors)

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def describe(self, group_id: str) -> GroupDescription:
        """Describe a group and its members, of either protocol, or raise GroupIdNotFound."""
        return await self._of_coordinator(
            group_id, lambda coordinator, node_id: described_group(coordinator, node_id, group_id)
        )

    async def describe_listed(
        self, listed: Iterable[GroupListing]
    ) -> dict[str, tuple[GroupDescription | None, dict[TopicPartition, int]]]:
        """Return descriptions and committed offsets of listed groups.

        The description is None for a group that its coordinator no longer has.
        """
        by_node: dict[int, list[GroupListing]] = {}
        for each in listed:
            by_node.setdefault(each.coordinator, []).append(each)
        found: dict[str, tuple[GroupDescription | None, dict[TopicPartition, int]]] = {}
        for node_id, groups in by_node.items():
            coordinator = await self.view.broker(node_id)
            described = await described_groups(coordinator, node_id, groups)
            names = [each.group_id for each in groups]
            offsets = await committed_of_groups(coordinator, names)
            found |= {name: (described.get(name), offsets.get(name, {})) for name in names}
        return found

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions, or of all partitions if None.

        With `stable` the call waits for the end of open transactions. If partitions is None, the
        call waits only for partitions with an earlier committed offset.
        """
        listed = None if partitions is None else list(partitions)

        async def ask(
            coordinator: BrokerConnection, _: int
        ) -> dict[TopicPartition, OffsetAndMetadata]:
            code, found = await fetch_committed(coordinator, group_id, listed, stable=stable)
            raise_code(code, name=group_id, operation="Describe")
            return found

        return await self._of_coordinator(group_id, ask)

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group without members.

        Raises UnknownMemberId for a group with members.
        """
        topics = committed_by_topic(with_metadata(offsets))

        async def ask(coordinator: BrokerConnection, _: int) -> None:
            values = {"group_id": group_id, "generation_id_or_member_epoch": NO_GENERATION}
            answer = await coordinator.call(
                OFFSET_COMMIT, {**values, "topics": topics}, newest=COMMIT_BY_NAME_NEWEST
            )
            _raise_first(answer.topics, group_id, "Read")

        await self._of_coordinator(group_id, ask)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets of topics that the group is not subscribed to.

        Raises GroupSubscribedToTopic, GroupIdNotFound.
        """
        topics = entries_by_topic((topic, {"partition_index": p}) for topic, p in partitions)

        async def ask(coordinator: BrokerConnection, _: int) -> None:
            values = {"group_id": group_id, "topics": topics}
            answer = await coordinator.call(OFFSET_DELETE, values)
            raise_error_of(answer, group_id, "Delete")
            _raise_first(answer.topics, group_id, "Delete")

        await self._of_coordinator(group_id, ask)

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets, or raise NonEmptyGroup."""

        async def ask(coordinator: BrokerConnection, _: int) -> None:
            values = {"groups_names": [group_id]}
            (result,) = (await coordinator.call(DELETE_GROUPS, values)).results
            raise_error_of(result, group_id, "Delete")

        await self._of_coordinator(group_id, ask)

    async def _of_coordinator(
        self, group_id: str, ask: Callable[[BrokerConnection, int], Awaitable[T]]
    ) -> T:
        async def attempt() -> T:
            node_id = await find_coordinator(self.view, group_id)
            return await ask(await self.view.broker(node_id), node_id)

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)


def _raise_first(topics: Iterable[Any], group_id: str, operation: str) -> None:
    """Raise the first error of a partition, or return if there is none.

    operation: the ACL operation that the request needs on the group. On topics it needs Read.
    """
    for topic in topics:
        for each in topic.partitions:
            code = int(each.error_code)
            if code:
                words = f"{topic.name}/{each.partition_index}: {error_for(code)}"
                is_topic = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                name, needed = (str(topic.name), "Read") if is_topic else (group_id, operation)
                raise error_about(code, name, needed, words)
