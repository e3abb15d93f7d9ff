"""Fetch (API 1), versions 4-18, for consumers.

KIP-74 (the first batch comes whatever its size) · KIP-98 (isolation) · KIP-227 (sessions: refused
by session id 0, so every fetch names everything) · KIP-320 (leader epochs) · KIP-392 (no
preferred replica) · KIP-516 (topic ids) · KIP-595 (divergence) · KIP-951 (the new leader).

Replicas fetch over the peer link only: a replica id on the client port is refused
(CVE-2018-1288), since it would show data above the high watermark.
"""

import asyncio
from collections.abc import Coroutine, Hashable
from functools import partial
from typing import Any

from ....replication.purgatory import BYTES_UNKNOWN, DelayedFetch
from ....wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRange,
)
from ....wire.framing import RequestHeader
from ....wire.messages import fetch
from ....wire.messages.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ....wire.steps import Steps, run_to_end
from ...listener.dispatch import (
    BODY_AT_ONCE_BYTES_MAX,
    Api,
    Buffer,
    CloseConnection,
    PendingAnswer,
    RequestContext,
)
from ...partitions.hosted_partition import HostedPartition
from ...partitions.replica_manager import ReplicaManager
from ..answers import nested
from ..leader_hints import LeaderHints

FETCH = 1
READ_COMMITTED = 1
NO_EPOCH = -1
NEW_SESSION, NO_SESSION = 0, -1  # epochs of a request that names all it wants (KIP-227)
PARTITIONS_AT_ONCE_MAX = 200  # about 1 ms
PARTITIONS_PER_STEP = 50
_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class _Read:
    """One pass over a request's partitions."""

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        self._context = context
        self._replicas: ReplicaManager = context.broker.replicas
        self._request = request
        self._hints = LeaderHints(context.broker.state)
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._limit_bytes = min(
            request.max_bytes, context.broker.config.fetch_max_bytes, context.budget.share_bytes
        )
        self.bytes_read = 0
        self.must_answer = False  # an error or a divergence does not wait
        self.watched: dict[HostedPartition, int] = {}
        # Where open transactions hide what is committed already.
        self.hidden: dict[Hashable, int] | None = {} if self._read_committed else None

    def run(self) -> FetchResponse:
        """Read every partition, within the limits."""
        topics = [
            FetchedTopic(
                topic.name, topic.topic_id, [self._partition(topic, p) for p in topic.partitions]
            )
            for topic in self._request.topics
        ]
        return FetchResponse(topics, node_endpoints=self._hints.endpoints)

    def steps(self) -> Steps[FetchResponse]:
        """The same, for many partitions."""
        topics = yield from nested(
            self._request.topics, self._partition, _fetched, PARTITIONS_PER_STEP
        )
        return FetchResponse(topics, node_endpoints=self._hints.endpoints)

    def is_outdated(self) -> bool:
        """Whether there is more to be read by now; while slices are done logs go on."""
        return any(
            partition.readable_end(self._read_committed) > offset
            for partition, offset in self.watched.items()
        )

    def _partition(self, topic: FetchTopic, wanted: FetchPartition) -> FetchedPartition:
        answer = FetchedPartition(wanted.index)
        name = topic.name
        try:
            if topic.topic_id is not None:
                known = self._context.broker.state.topic_by_id(topic.topic_id)
                name = None if known is None else known.name
                partition = self._replicas.partition_by_id(topic.topic_id, name, wanted.index)
            else:
                assert name is not None
                partition = self._replicas.partition(name, wanted.index)
            self._read(partition, wanted, answer)
        except KafkaError as error:
            self.must_answer = True
            answer = FetchedPartition(wanted.index, error.number)
            if error.code in _LEADER_ERRORS and name is not None:
                answer.current_leader = self._hints.leader_of(name, wanted.index)
        return answer

    def _read(
        self, partition: HostedPartition, wanted: FetchPartition, answer: FetchedPartition
    ) -> None:
        leader = partition.leading(max(NO_EPOCH, wanted.current_leader_epoch))
        log, offset = partition.log, wanted.fetch_offset
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if epoch < 0 and wanted.last_fetched_epoch != leader.leader_epoch:
                raise OffsetOutOfRange("the epoch that was fetched last is not known here")
            if epoch >= 0 and (epoch < wanted.last_fetched_epoch or end_offset < offset):
                answer.diverging_epoch = (epoch, end_offset)
                self.must_answer = True
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
        if self._read_committed:
            answer.aborted_transactions = []
        if answer.diverging_epoch is not None:
            return
        upper = answer.last_stable_offset if self._read_committed else answer.high_watermark
        room = self._limit_bytes - self.bytes_read
        first = self.bytes_read == 0
        read = log.read(
            offset,
            max(0, min(wanted.max_bytes, room)) if (first or room > 0) else 0,
            upper_offset=upper,
            min_one_batch=first,
        )
        if read.data:
            if self._read_committed:
                try:
                    aborted = log.aborted_transactions.between(offset, read.next_offset)
                except KafkaStorageError:
                    self._replicas.written.add(partition)  # where an index is mended
                    raise
                answer.aborted_transactions = aborted
            answer.records = read.data
            self.bytes_read += len(read.data)
        self.watched[partition] = max(offset, upper)
        if self.hidden is not None and upper < answer.high_watermark:
            self.hidden[partition] = BYTES_UNKNOWN


def handle(
    context: RequestContext, header: RequestHeader, body: memoryview
) -> list[Buffer] | PendingAnswer | Coroutine[Any, Any, list[Buffer]]:
    """Answer at once when there is enough, else when there is or the wait is over."""
    version = header.api_version
    if len(body) > BODY_AT_ONCE_BYTES_MAX:
        return _decode_in_slices(context, body, version)
    request = fetch.decode_request(body, version)
    _check_asker(request)
    if request.session_epoch not in (NEW_SESSION, NO_SESSION):
        return _session_refused(version)
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_AT_ONCE_MAX:
        return _fetch_in_slices(context, request, version)
    first = _Read(context, request)
    response = first.run()
    if _is_enough(first, request):
        return fetch.encode_response(response, version)
    waiting = _WaitingFetch(context, request, version)
    waiting.wait_for_more(first)
    return waiting.pending


def _check_asker(request: FetchRequest) -> None:
    if request.replica_id >= 0:
        raise InvalidRequest("replicas fetch over the peer link, not here")


class _WaitingFetch:
    """A fetch that found too little: it looks again when there is more, or at its deadline.

    Its answer knows it only until it is done: long waits would leave cycles that outlive the
    collections of young objects, and full ones do not happen (garbage_collection).
    """

    __slots__ = ("_context", "_deadline_ms", "_request", "_version", "pending")

    def __init__(self, context: RequestContext, request: FetchRequest, version: int) -> None:
        self._context, self._request, self._version = context, request, version
        now_ms = context.broker.replicas.clock.monotonic_ms()
        self._deadline_ms = now_ms + request.max_wait_ms
        self.pending = PendingAnswer()

    def wait_for_more(self, read: _Read) -> None:
        operation = DelayedFetch(
            {**read.watched},
            max(1, self._request.min_bytes - read.bytes_read),
            self._deadline_ms,
            self._look_again,
            hidden_bytes=read.hidden,
        )
        replicas: ReplicaManager = self._context.broker.replicas
        replicas.wait_fetch(operation)
        self.pending.on_abandon = partial(replicas.purgatory.cancel, operation)

    def _look_again(self, _: DelayedFetch) -> None:
        if self.pending.is_done:
            return
        read = _Read(self._context, self._request)
        answer = read.run()
        now_ms = self._context.broker.replicas.clock.monotonic_ms()
        if _is_enough(read, self._request) or now_ms >= self._deadline_ms:
            self.pending.complete(fetch.encode_response(answer, self._version))
        else:
            self.wait_for_more(read)


async def _decode_in_slices(
    context: RequestContext, body: memoryview, version: int
) -> list[Buffer]:
    work = context.broker.work
    async with context.broker.large_fetches.turn(context, len(body)):
        request = await work.run("Fetch", fetch.decode_request_steps(body, version))
        try:
            _check_asker(request)
        except KafkaError as error:
            refusal = await work.run("Fetch", _refusal(request, error))
            return await work.run("Fetch", fetch.encode_response_steps(refusal, version))
        if request.session_epoch not in (NEW_SESSION, NO_SESSION):
            return _session_refused(version)
        read = _Read(context, request)
        answer = await work.run("Fetch", read.steps())
        if _is_enough(read, request):  # as where many are asked for that are not here
            return await work.run("Fetch", fetch.encode_response_steps(answer, version))
        del answer
    return await _fetch_in_slices(context, request, version, read)


async def _fetch_in_slices(
    context: RequestContext, request: FetchRequest, version: int, read: _Read | None = None
) -> list[Buffer]:
    """For many partitions: each look at them takes several turns of the loop.

    read: the first look, which found too little.
    """
    replicas: ReplicaManager = context.broker.replicas
    deadline_ms = replicas.clock.monotonic_ms() + request.max_wait_ms
    while True:
        if read is None:
            read = _Read(context, request)
            answer = await context.broker.work.run("Fetch", read.steps())
            if _is_enough(read, request) or replicas.clock.monotonic_ms() >= deadline_ms:
                encoding = fetch.encode_response_steps(answer, version)
                return await context.broker.work.run("Fetch", encoding)
            del answer
        if read.is_outdated():
            read = None
            continue
        done = asyncio.get_running_loop().create_future()
        operation = DelayedFetch(
            {**read.watched},
            max(1, request.min_bytes - read.bytes_read),
            deadline_ms,
            lambda _, done=done: done.done() or done.set_result(None),
            hidden_bytes=read.hidden,
        )
        read = None
        replicas.wait_fetch(operation)
        try:
            await done
        finally:
            replicas.purgatory.cancel(operation)


def _is_enough(read: _Read, request: FetchRequest) -> bool:
    return (
        read.must_answer
        or read.bytes_read >= request.min_bytes
        or request.max_wait_ms <= 0
        or not read.watched
    )


def _session_refused(version: int) -> list[Buffer]:
    return fetch.encode_response(
        FetchResponse([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), version
    )


def _on_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Buffer]:
    if len(body) > BODY_AT_ONCE_BYTES_MAX:
        raise CloseConnection(f"a fetch failed: {error}")
    request = fetch.decode_request(body, header.api_version)
    return fetch.encode_response(run_to_end(_refusal(request, error)), header.api_version)


def _refusal(request: FetchRequest, error: KafkaError) -> Steps[FetchResponse]:
    def refused(topic: FetchTopic, wanted: FetchPartition) -> FetchedPartition:
        return FetchedPartition(wanted.index, error.number)

    topics = yield from nested(request.topics, refused, _fetched)
    return FetchResponse(topics, error_code=error.number)


def _fetched(topic: FetchTopic, partitions: list[FetchedPartition]) -> FetchedTopic:
    return FetchedTopic(topic.name, topic.topic_id, partitions)


def apis() -> tuple[Api, ...]:
    """The rows of the dispatch table."""
    versions = fetch.OLDEST, fetch.NEWEST
    return (Api(FETCH, *versions, handle, _on_error, ends_with_client=True),)
