"""OffsetCommit by a member or by a client outside of a group (see `offset_commits`).

Consumers commit a few partitions very often. Such a request is appended in the turn of the event
loop in which it arrives, and answered in the turn of its commit. The request needs no task, which
would cost two more turns. Its encoded answer is mostly cached. Larger requests are handled in
slices.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from ....coordinator.groups.records import encode_offset_key
from ....runtime.steps import run_to_end
from ....wire.acls import AclOperation
from ....wire.errors import ErrorCode, KafkaError, UnknownServerError
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, control, requests
from ...groups.shard import GroupShard
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.pending_answer import PendingAnswer
from ...security.rights import on_each_topic, on_group
from ..answers import completing, of_each_partition
from .offset_commits import OFFSETS_A_STEP, SortedCommit, coordinator_error

if TYPE_CHECKING:
    from .offset_commits import _Response

KEYS_REMEMBERED, REMEMBERED_GROUP_ID_MAX = 4096, 255
ANSWERS_REMEMBERED, REMEMBERED_ITEMS_MAX = 512, 16
TOPIC_IDS_FROM = 10
remembered_key = lru_cache(KEYS_REMEMBERED)(encode_offset_key)
_Committed = tuple[str | bytes, tuple[int, ...]]  # the name or id of a topic, and its partitions


def short_offset_commit(
    context: RequestContext, header: RequestHeader, request: "requests.OffsetCommitRequest"
) -> PendingAnswer | None:
    """Append the offsets of a few partitions, and return the pending answer.

    Returns None for many partitions, which `offset_commit` commits in a task. A task would increase
    the time of a request on the event loop from 92 us to 104-113 us.
    """
    if sum(1 + len(topic.partitions) for topic in request.topics) >= OFFSETS_A_STEP:
        return None
    broker, version, pending = context.broker, header.api_version, PendingAnswer()
    commit = SortedCommit(broker, request)

    def encode(error: Exception | None) -> bytes:
        answer = commit.answer()
        if isinstance(error, KafkaError):
            answer = commit.fail(coordinator_error(error))
        elif error is not None:
            answer = commit.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _encoded(version, answer, commit.is_refused)

    committed = completing(pending, encode, UnknownServerError())
    run_to_end(commit.sorting(broker.state, request))
    try:
        if commit.offsets:
            shard = broker.groups.shard_for(commit.group_id)
            run_to_end(commit.checking_room(shard.offsets))
            _check(shard, header, request, commit)
            is_short = len(commit.group_id) <= REMEMBERED_GROUP_ID_MAX
            key = remembered_key if is_short else encode_offset_key
            metadata_max = broker.config.offset_metadata_max_bytes
            batch = run_to_end(commit.encoding(metadata_max, key=key))
            if batch:
                broker.groups.append_then(shard, batch, committed)
                return pending
    except KafkaError as error:
        committed(error)
    else:
        committed(None)
    return pending


async def offset_commit(
    context: RequestContext, header: RequestHeader, request: "requests.OffsetCommitRequest"
) -> "_Response":
    """Commit any number of partitions, in slices."""
    broker = context.broker
    commit = SortedCommit(broker, request)
    await broker.work.finish("OffsetCommit", commit.sorting(broker.state, request))
    if not commit.offsets:
        return commit.answer()
    encoding = commit.encoding(broker.config.offset_metadata_max_bytes)
    batch = await broker.work.finish("OffsetCommit", encoding)
    try:
        shard = broker.groups.shard_for(commit.group_id)
        await broker.work.finish("OffsetCommit", commit.checking_room(shard.offsets))
        # Looked up again, since the shard may have resigned in the meantime.
        shard = broker.groups.shard_for(commit.group_id)
        _check(shard, header, request, commit)
        commit.check_topics(broker.state)
        if batch:
            await broker.groups.append(shard, batch)
    except KafkaError as error:
        return commit.fail(coordinator_error(error))
    return commit.answer()


def _check(
    shard: GroupShard,
    header: RequestHeader,
    request: "requests.OffsetCommitRequest",
    commit: SortedCommit,
) -> None:
    shard.check_offset_commit(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        is_transactional=False,
        api_version=header.api_version,
        partitions=commit.partitions,
    )


def _encoded(version: int, answer: "_Response", is_refused: bool) -> bytes:
    topics = cast("list[Any]", answer.get("topics"))
    if is_refused or sum(1 + len(each["partitions"]) for each in topics) > REMEMBERED_ITEMS_MAX:
        return control.encode_response(api_keys.OFFSET_COMMIT, version, answer)
    name = "topic_id" if version >= TOPIC_IDS_FROM else "name"
    named = ((each[name], each["partitions"]) for each in topics)
    return _all_committed(
        version,
        tuple((topic, tuple(each["partition_index"] for each in some)) for topic, some in named),
    )


@lru_cache(ANSWERS_REMEMBERED)
def _all_committed(version: int, topics: tuple[_Committed, ...]) -> bytes:
    """Return the encoded answer without errors, which is cached by the committed topics."""
    answers: list[Any] = [
        {
            "topic_id" if isinstance(topic, bytes) else "name": topic,
            "partitions": [{"partition_index": index, "error_code": 0} for index in indexes],
        }
        for topic, indexes in topics
    ]
    return control.encode_response(api_keys.OFFSET_COMMIT, version, {"topics": answers})


def apis() -> tuple[Api, ...]:
    """Return the row of OffsetCommit in the API table."""
    refuse = of_each_partition()
    return (
        control_api(
            api_keys.OFFSET_COMMIT,
            (2, 10),
            offset_commit,
            refuse,
            rights=(on_group(AclOperation.READ), on_each_topic(AclOperation.READ)),
            begin=short_offset_commit,
        ),
    )
