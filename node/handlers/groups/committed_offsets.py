"""The APIs to fetch and delete the committed offsets of groups.

OffsetFetch 1-10   v2 all topics (null), and errors of the group; v5 leader epochs (KIP-320);
                   v7 stable offsets only (KIP-447); v8 several groups (KIP-709); v10 topic ids
                   (KIP-848). The offset is -1 without a commit, and for an unknown group.
OffsetDelete 0     KIP-496; only for topics without subscribed members.

A request for stable offsets waits for commits that are being replicated. It gets
UNSTABLE_OFFSET_COMMIT for a partition whose offset an open transaction may still change. An offset
that was committed for a deleted topic is ignored if a new topic has the same name. (Kafka ignores
it only from version 10 on, and only for commits with topic ids.)
"""

import asyncio
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ....coordinator.groups.offset_table import OffsetTable
from ....coordinator.groups.records import NO_TOPIC_ID, OffsetValue, encode_offset_key
from ....coordinator.metadata.cluster_state import ClusterState
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import ErrorCode, InvalidGroupId, KafkaError, NotCoordinator
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...groups.removal import append_tombstones, encoding_tombstones
from ...groups.shard import GroupShard
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.access import Access
from ...security.rights import EachItem, OfAnswer, Resource, on_each_topic, on_group
from ...services import BrokerServices
from ..answers import entries_bytes, nested, of_each_partition
from .offset_commits import coordinator_error

BATCHED_FROM, IDS_FROM, GROUP_ERRORS_FROM = 8, 10, 2
if TYPE_CHECKING:
    _Topics = list[requests.OffsetFetchRequest.OffsetFetchRequestTopics]
    _OldTopic = responses.OffsetFetch.OffsetFetchResponseTopic
    _Topic = responses.OffsetFetch.OffsetFetchResponseTopics
    _Partition = responses.OffsetFetch.OffsetFetchResponsePartitions
NO_OFFSET = NO_EPOCH = -1
OFFSETS_A_STEP = 100


async def offset_fetch(
    context: RequestContext, header: RequestHeader, request: "requests.OffsetFetchRequest"
) -> "Steps[responses.OffsetFetch.Response]":
    """Return the committed offsets of groups.

    A request for stable offsets first waits until the groups' pending commits are settled.
    """
    broker = context.broker
    version = header.api_version
    unsettled: dict[str, int] = {}
    if getattr(request, "require_stable", False):
        groups = request.groups if version >= BATCHED_FROM else [request]
        for group in groups:
            await broker.work.share.room()
            unsettled[group.group_id] = await _settle(broker, group.group_id)
    return _offsets(broker, request, version, unsettled)


async def _settle(broker: BrokerServices, group_id: str) -> int:
    """Wait until a group's pending commits are settled. Return NONE, or the error if this fails."""
    try:
        await broker.groups.until_settled(broker.groups.shard_for(group_id))
    except KafkaError as error:
        return _fetch_error(error)
    return ErrorCode.NONE


def _offsets(
    broker: BrokerServices,
    request: "requests.OffsetFetchRequest",
    version: int,
    unsettled: dict[str, int],
) -> "Steps[responses.OffsetFetch.Response]":
    stable = getattr(request, "require_stable", False)
    if version >= BATCHED_FROM:
        answers: list[responses.OffsetFetch.OffsetFetchResponseGroup] = []
        for number, group in enumerate(request.groups):
            if number:
                yield
            error, found = unsettled.get(group.group_id, 0), list["_Topic"]()
            if not error:
                member = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
                fetching = _fetch(broker, group.group_id, group.topics, version, stable, member)
                error, found = yield from fetching
            answers.append({"group_id": group.group_id, "error_code": error, "topics": found})
        return {"groups": answers}
    topics = cast("_Topics | None", request.topics)  # topic ids exist since version 10
    error, found = unsettled.get(request.group_id, 0), list["_Topic"]()
    if not error:
        error, found = yield from _fetch(broker, request.group_id, topics, version, stable)
    return _single(request, version, error, found)


def _offsets_bytes(context: RequestContext, request: "requests.OffsetFetchRequest") -> Steps[int]:
    """Return the estimated memory of the answer for the groups that request all topics.

    Answers for named topics are about as long as their request, and are not counted.
    """

    def count(
        group: "requests.OffsetFetchRequest | requests.OffsetFetchRequest.OffsetFetchRequestGroup",
    ) -> int:
        if group.topics is not None:
            return 0
        try:
            return context.broker.groups.shard_for(group.group_id).offsets.count(group.group_id)
        except KafkaError:
            return 0

    return entries_bytes(count, getattr(request, "groups", (request,)))


def _fetch(
    broker: BrokerServices,
    group_id: str,
    topics: "_Topics | None",
    version: int,
    stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> "Steps[tuple[int, list[_Topic]]]":
    """Return the error and the topics of one group, in the format of version 8 and later."""
    try:
        shard = broker.groups.shard_for(group_id)
        offsets = shard.offsets if shard.check_offset_fetch(group_id, *member) else None
        group = _Group(broker.state, offsets, group_id, version, stable)
        answers = yield from group.all_topics() if topics is None else group.asked_topics(topics)
        # The shard was closed during the request, and its offsets may be incomplete.
        if broker.groups.shard_for(group_id) is not shard:
            raise NotCoordinator
    except KafkaError as error:
        return _fetch_error(error), []
    return ErrorCode.NONE, answers


class _Group(NamedTuple):
    """The offsets of one group in one request.

    offsets: None for an unknown group.
    """

    state: ClusterState
    offsets: OffsetTable | None
    group_id: str
    version: int
    stable: bool

    def asked_topics(self, topics: "_Topics") -> "Steps[list[_Topic]]":
        answers: list[_Topic] = []
        count = 0
        for topic in topics:
            indexes, first = topic.partition_indexes, topic.partition_indexes[:OFFSETS_A_STEP]
            answer, partitions = self._asked_topic(topic, first)
            answers.append(answer)
            for start in range(OFFSETS_A_STEP, len(indexes), OFFSETS_A_STEP):
                yield
                some = indexes[start : start + OFFSETS_A_STEP]
                if "name" in answer:
                    partitions += self._asked_topic(topic, some)[1]
                else:
                    # The topic may be known by now, but the answer has no name for the check of
                    # rights.
                    partitions += _unknown(some)
            count += 1 + len(first)
            if count >= OFFSETS_A_STEP:
                count = 0
                yield
        return answers

    def _asked_topic(
        self, asked: "requests.OffsetFetchRequest.OffsetFetchRequestTopics", indexes: list[int]
    ) -> "tuple[_Topic, list[_Partition]]":
        """Return the answer for a requested topic, and the list of partitions in that answer.

        The caller adds further partitions to the list.
        """
        if self.version >= IDS_FROM:
            topic = self.state.topic_by_id(asked.topic_id)
            if topic is None:
                unknown = _unknown(indexes)
                return {"topic_id": asked.topic_id, "partitions": unknown}, unknown
            name = topic.name
        else:
            name = asked.name
            topic = self.state.topics.get(name)
        topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        partitions = [
            self._answer(name, index, topic_id) or _partition(index, None) for index in indexes
        ]
        return {"name": name, "topic_id": topic_id, "partitions": partitions}, partitions

    def all_topics(self) -> "Steps[list[_Topic]]":
        """Return all committed offsets of the group, by topic.

        From version 10 on, offsets of deleted topics are omitted.
        """
        answers: list[_Topic] = []
        # The key has the topic id, because a new topic may have the name of a deleted one.
        by_topic: dict[tuple[str, bytes], list[_Partition]] = {}
        committed = () if self.offsets is None else self.offsets.committed(self.group_id)
        for count, (name, index) in enumerate(committed, 1):
            if count % OFFSETS_A_STEP == 0:
                yield
            topic = self.state.topics.get(name)
            if topic is None and self.version >= IDS_FROM:
                continue
            topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
            answer = self._answer(name, index, topic_id)
            # Removed during the request, or committed for a deleted topic with this name.
            if answer is None:
                continue
            partitions = by_topic.get((name, topic_id))
            if partitions is None:
                partitions = by_topic[name, topic_id] = []
                answers.append({"name": name, "topic_id": topic_id, "partitions": partitions})
            partitions.append(answer)
        return answers

    def _answer(self, name: str, index: int, topic_id: bytes) -> "_Partition | None":
        """Return a committed offset, or None if there is none for the current topic of the name.

        A request for stable offsets gets UNSTABLE_OFFSET_COMMIT for an unstable offset.
        """
        if self.offsets is None:
            return None
        if self.stable and self.offsets.is_unstable(self.group_id, name, index):
            return _partition(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.offsets.fetch(self.group_id, name, index)
        if value is None or (
            value.topic_id != topic_id and NO_TOPIC_ID not in (value.topic_id, topic_id)
        ):
            return None
        return _partition(index, value)


def _unknown(indexes: list[int]) -> "list[_Partition]":
    return [_partition(index, None, ErrorCode.UNKNOWN_TOPIC_ID) for index in indexes]


def _partition(index: int, value: OffsetValue | None, error: int = ErrorCode.NONE) -> "_Partition":
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if value is None else value.offset,
        "committed_leader_epoch": NO_EPOCH if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": error,
    }


def _single(
    request: "requests.OffsetFetchRequest", version: int, error: int, found: "list[_Topic]"
) -> "responses.OffsetFetch.Response":
    """Return an answer for versions before 8, which have a single group."""
    if not error or version >= GROUP_ERRORS_FROM:
        # The answer is without topic ids, which exist since version 10.
        topics = cast("list[_OldTopic]", found)
        return {"topics": topics, "error_code": error}

    def failed(topic: "requests.OffsetFetchRequest.OffsetFetchRequestTopic") -> "_OldTopic":
        partitions = Each(partial(_failed_partition, error), topic.partition_indexes)
        return {"name": topic.name, "partitions": partitions}

    return {"topics": Each(failed, request.topics or ())}


def _failed_partition(error: int, index: int) -> "_Partition":
    return _partition(index, None, error)


def _fetch_error(error: KafkaError) -> int:
    """Return the error code for the client, with NOT_COORDINATOR for COORDINATOR_NOT_AVAILABLE.

    Consumers before 3.9 do not retry an OffsetFetch after COORDINATOR_NOT_AVAILABLE.
    """
    number = coordinator_error(error)
    if number == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_COORDINATOR
    return number


def _fetch_refusal(
    request: "requests.OffsetFetchRequest", error: KafkaError
) -> "responses.OffsetFetch.Response":
    if not hasattr(request, "groups"):
        return {"error_code": error.number, **_single(request, 1, error.number, [])}

    groups = request.groups
    return {"groups": Each(lambda g: {"group_id": g.group_id, "error_code": error.number}, groups)}


async def offset_delete(
    context: RequestContext, header: RequestHeader, request: "requests.OffsetDeleteRequest"
) -> "responses.OffsetDelete.Response":
    """Delete the committed and pending offsets of a group in the requested partitions."""
    broker = context.broker
    group_id = request.group_id
    try:
        if not group_id:
            raise InvalidGroupId
        shard = broker.groups.shard_for(group_id)
        removed: list[asyncio.Future[None]] = []
        steps = _delete_all(broker, shard, request, removed)
        topics = await broker.work.finish("OffsetDelete", steps)
        await asyncio.gather(*removed)
    except KafkaError as error:
        return _delete_refusal(request, error)
    return {"topics": topics}


def _delete_all(
    broker: BrokerServices,
    shard: GroupShard,
    request: "requests.OffsetDeleteRequest",
    removed: "list[asyncio.Future[None]]",
) -> "Steps[list[responses.OffsetDelete.OffsetDeleteResponseTopic]]":
    """Append the tombstones of all requested offsets together, and return the answers.

    The futures of the tombstones are added to `removed`. If the subscriptions change while the
    tombstones are encoded, they are encoded again.
    """
    subscribed, now_subscribed = None, shard.check_offset_delete(request.group_id)
    topics: list[responses.OffsetDelete.OffsetDeleteResponseTopic] = []
    batches: list[bytes] = []
    while subscribed != now_subscribed:
        subscribed, keys = now_subscribed, list[bytes]()
        judge = partial(_judge, broker.state, shard.offsets, request.group_id, subscribed, keys)
        topics = yield from nested(request.topics, judge, at_a_step=OFFSETS_A_STEP)
        batches = yield from encoding_tombstones(keys, broker.groups.clock.wall_ms())
        broker.groups.check_serving(shard)
        now_subscribed = shard.check_offset_delete(request.group_id)
    removed += append_tombstones(broker.groups, shard, batches)
    return topics


def _judge(
    state: ClusterState,
    offsets: OffsetTable,
    group_id: str,
    subscribed: Container[str],
    keys: list[bytes],
    topic: "requests.OffsetDeleteRequest.OffsetDeleteRequestTopic",
    wanted: "requests.OffsetDeleteRequest.OffsetDeleteRequestPartition",
) -> "responses.OffsetDelete.OffsetDeleteResponsePartition":
    """Return the answer for one partition, and add its key to `keys` if it can be deleted.

    That requires a committed or pending offset, and no subscription to the topic.
    """
    name, index, error = topic.name, wanted.partition_index, ErrorCode.NONE
    if state.partition(name, index) is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif name in subscribed:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    elif offsets.has(group_id, name, index):
        keys.append(encode_offset_key(group_id, name, index))
    return {"partition_index": index, "error_code": error}


def _delete_refusal(
    request: "requests.OffsetDeleteRequest", error: KafkaError
) -> "responses.OffsetDelete.Response":
    return {"error_code": coordinator_error(error), "topics": []}


def _show_topics(
    access: Access, state: ClusterState, request: "requests.OffsetFetchRequest", values: Any
) -> Steps[Any]:
    """Return the answer with an error for each topic that the client may not describe.

    An answer for all topics omits these topics.
    """
    counter = StepCounter(OFFSETS_A_STEP)

    def shown(topics: Any, asks_for_all: bool) -> Steps[list[Any]]:
        answers: list[Any] = []
        for topic in topics:
            name = topic.get("name")
            is_hidden = name is not None and not access.allows(
                AclOperation.DESCRIBE, ResourceType.TOPIC, name
            )
            if not is_hidden:
                answers.append(topic)
            elif not asks_for_all:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused = [
                    _partition(p["partition_index"], None, error) for p in topic["partitions"]
                ]
                answers.append({**topic, "partitions": refused})
            if counter.ends_steps(1 + len(topic["partitions"])):
                yield
        return answers

    if "groups" not in values:
        topics = yield from shown(values.get("topics", ()), request.topics is None)
        return {**values, "topics": topics}
    asks_for_all = {group.group_id for group in request.groups if group.topics is None}
    groups: list[Any] = []
    for group in values["groups"]:
        topics = yield from shown(group.get("topics", ()), group["group_id"] in asks_for_all)
        groups.append({**group, "topics": topics})
    return {**values, "groups": groups}


def _group_of(state: object, request: object, item: Any) -> Resource:
    return ResourceType.GROUP, item.group_id


OFFSET_FETCH_RIGHTS = (
    on_group(AclOperation.DESCRIBE),
    EachItem(AclOperation.DESCRIBE, (ResourceType.GROUP,), "groups", _group_of),
    OfAnswer(((AclOperation.DESCRIBE, ResourceType.TOPIC),), _show_topics),
)


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.OFFSET_FETCH,
            (1, 10),
            offset_fetch,
            _fetch_refusal,
            rights=OFFSET_FETCH_RIGHTS,
            answer_bytes=_offsets_bytes,
        ),
        control_api(
            api_keys.OFFSET_DELETE,
            (0, 0),
            offset_delete,
            _delete_refusal,
            rights=(
                on_group(AclOperation.DELETE),
                on_each_topic(AclOperation.READ, refuse=of_each_partition()),
            ),
        ),
    )
