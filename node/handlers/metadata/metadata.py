"""The API of topics and their leaders.

Metadata 0-13   v0: [] requests all topics, and a replica on a dead broker is an error; v1: null
                requests all; v4: auto-creation can be declined; v5: offline replicas; v7: leader
                epochs (KIP-320); v8: authorized operations (KIP-430), v11 without the cluster's;
                v10: topic ids in answers, v12 in requests (KIP-516); v13: a top-level error.

The encoded answer is cached by the bytes of the request until the metadata changes, so that a
repeated request costs a dictionary lookup. Requests that arrive while a long answer is built share
that answer (`shared_answers`).

Difference from Kafka: a topic that the request itself creates is usually in the answer, because the
controller creates it within milliseconds. If that takes longer, the topic's error is
LEADER_NOT_AVAILABLE, which all clients retry.
"""

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from ....coordinator.metadata.cluster_model import Topic
from ....coordinator.metadata.cluster_state import ClusterState
from ....coordinator.metadata.topic_names import why_invalid
from ....runtime.first_step import in_task
from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import ErrorCode, InvalidRequest, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, control, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import (
    BODY_AT_ONCE_BYTES_MAX,
    Api,
    CloseConnection,
    Decoding,
    RequestContext,
    encoded,
)
from ...listener.large_requests import Nobody, Place, RequestConnection
from ...security.access import Access
from ...security.rights import ByHandler
from ...services import BrokerServices
from ..answers import entries_bytes
from .auto_creation import AutoCreation
from .cluster import NOT_ASKED, address_of, cluster_operations, in_order, operations_on
from .shared_answers import Computation, SharedAnswers
from .topic_entries import PARTITIONS_PER_STEP, ZERO_ID, denied_topic, missing_topic, topic_values

CACHED_QUESTION_BYTES_MAX = 4096
CACHED_ANSWERS_BYTES_MAX = 4 * 1024 * 1024
ENTRIES_AT_ONCE_MAX = PARTITIONS_PER_STEP - 1  # longer answers take several steps
NO_ERRORS: Mapping[str, int] = MappingProxyType({})
Key = tuple[int, bytes, str, object]  # version, request, listener, principal and host


class MetadataAnswers:
    """The answers to Metadata of one broker, with a cache."""

    def __init__(self, creation: AutoCreation) -> None:
        self._creation = creation
        self._cached: dict[Key, bytes] = {}
        self._cached_bytes = 0
        self._cached_at = (-1, -1, -1)
        self._shared: SharedAnswers[bytes] | None = None  # its moment is that of the broker
        self._decoding = Decoding(api_keys.METADATA)

    def handle(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Any] | Coroutine[Any, Any, list[Any]]:
        """Return the encoded answer to a Metadata request, or a coroutine that returns it later."""
        if context.broker.suspected_brokers.must_wait(context.age_ms):
            return self._answer_when_settled(context, header, body)
        return self._answer_now(context, header, body)

    async def _answer_when_settled(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Any]:
        await context.broker.suspected_brokers.settled(context.age_ms)
        answer = self._answer_now(context, header, body)
        return answer if isinstance(answer, list) else await answer

    def _answer_now(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Any] | Coroutine[Any, Any, list[Any]]:
        self._forget_outdated(context.broker)
        version = header.api_version
        key = None
        if len(body) <= CACHED_QUESTION_BYTES_MAX:
            # The rights of an authorizer depend on principal and host.
            is_open = context.broker.authorizer is None
            asker = None if is_open else (context.principal, context.peer_host)
            key = (version, bytes(body), context.listener, asker)
        if key in self._cached:
            return [self._cached[key]]
        return self._decoding.then(partial(self._answer, key), context, header, body)

    async def _answer(
        self,
        key: Key | None,
        context: RequestContext,
        header: RequestHeader,
        request: "requests.MetadataRequest",
        _: Place | None,
    ) -> list[Any]:
        """Return the encoded answer to a decoded request.

        The request's topics are looked up again in each step (`_Question`). The answer is cached
        only if the metadata has not changed since the first step.
        """
        broker, version, began_at = context.broker, header.api_version, self._cached_at
        try:
            asking = _question(context, version, request)
            question = await broker.work.finish("Metadata", asking)
        except KafkaError as error:
            refusal = _refusal(request, version, error)
            return [await encoded(context, api_keys.METADATA, version, refusal)]
        to_create = await broker.work.finish("Metadata", self._to_create(question))
        if to_create:
            errors = await in_task(self._creation.create(broker, to_create))
            return [await _build_in_turn(question, context, errors)]
        if not _is_long(question):
            answer = await _build(question)
            self._keep(broker, key, answer, began_at)
        elif key is None:
            answer = await _build_in_turn(question, context)
        else:
            answer = await self._share_answer(question, key)
        return [answer]

    async def _share_answer(self, question: "_Question", key: Key) -> bytes:
        """Return one answer for all equal requests, which does not depend on their connections."""
        broker = question.context.broker
        if self._shared is None:
            self._shared = SharedAnswers(lambda: _moment(broker))

        async def make(computation: Computation[bytes]) -> bytes:
            answer = await _build_in_turn(question, Nobody(), begin=computation.begin)
            self._keep(broker, key, answer, computation.began_at)
            return answer

        return await self._shared.get(key, question.context, make)

    def _forget_outdated(self, broker: BrokerServices) -> None:
        now_at = _moment(broker)
        if now_at != self._cached_at:
            self._cached.clear()
            self._cached_bytes = 0
            self._cached_at = now_at

    def _keep(
        self, broker: BrokerServices, key: Key | None, answer: bytes, began_at: Hashable
    ) -> None:
        """Cache an answer, unless the metadata has changed since its begin or the cache is full."""
        self._forget_outdated(broker)
        if key is None or key in self._cached or began_at != self._cached_at:
            return
        if self._cached_bytes + len(answer) <= CACHED_ANSWERS_BYTES_MAX:
            self._cached[key] = answer
            self._cached_bytes += len(answer)

    def _to_create(self, question: "_Question") -> Steps[list[str]]:
        if question.names is None or question.by_id or not question.creates_topics:
            return []
        to_create: list[str] = []
        counter = StepCounter()
        for name in question.names:
            if counter.ends_step():
                yield
            if (
                isinstance(name, str)
                and name not in question.state.topics
                and question.may_create(name)
                and self._creation.may_create(name)
            ):
                to_create.append(name)
        return to_create


class _Question(NamedTuple):
    """A Metadata request and the topics it names. `names` is None if it requests all topics.

    `by_id`: the topics are named by their ids, as bytes.
    """

    context: RequestContext
    version: int
    request: "requests.MetadataRequest"
    names: Sequence[str | bytes] | None
    by_id: bool = False

    @property
    def state(self) -> ClusterState:
        return self.context.broker.state

    @property
    def access(self) -> Access | None:
        """The rights of the client, or None without an authorizer."""
        return None if self.context.broker.authorizer is None else self.context.access

    @property
    def creates_topics(self) -> bool:
        """Return whether missing topics are created."""
        return self.context.broker.config.auto_create_topics_enable and getattr(
            self.request, "allow_auto_topic_creation", True
        )

    def may_create(self, name: str) -> bool:
        """Return whether the client has the rights to describe and to create the topic."""
        access = self.access
        return access is None or (
            access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            and (
                access.allows(AclOperation.CREATE, ResourceType.CLUSTER)
                or access.allows(AclOperation.CREATE, ResourceType.TOPIC, name)
            )
        )

    def topic(self, asked: str | bytes) -> Topic | None:
        """Return the current topic of a name or an id."""
        if isinstance(asked, bytes):
            return self.state.topic_by_id(asked)
        return self.state.topics.get(asked)

    def size(self, asked: str | bytes) -> int:
        """Return the number of entries for a topic in the answer, for itself and its partitions."""
        topic = self.topic(asked)
        return 1 if topic is None else 1 + len(topic.partitions)


def _moment(broker: BrokerServices) -> tuple[int, int, int]:
    """Return the versions of the state that answers depend on."""
    return broker.state.version, broker.controller_id, broker.recently_fenced_brokers.revision


def _question(
    context: RequestContext, version: int, request: "requests.MetadataRequest"
) -> Steps[_Question]:
    if request.topics is None or (version == 0 and not request.topics):
        return _Question(context, version, request, None)
    names: dict[str | bytes, None] = {}
    found: dict[str | bytes, None] = {}
    counter = StepCounter()
    for topic in request.topics:
        topic_id = getattr(topic, "topic_id", ZERO_ID)
        if topic.name is None and version < 12:
            raise InvalidRequest(f"Topic name can not be null for version {version}")
        if topic_id != ZERO_ID and version < 12:
            raise InvalidRequest(f"Topic IDs are not supported in requests for version {version}")
        if topic_id != ZERO_ID:
            # An id is exact, since a new topic of the same name has another id.
            found[topic_id] = None
        names[topic.name or ""] = None
        if counter.ends_step():
            yield
    return _Question(context, version, request, list(found or names), by_id=bool(found))


async def _build_in_turn(
    question: _Question,
    client: RequestConnection,
    errors: Mapping[str, int] = NO_ERRORS,
    begin: Callable[[], None] | None = None,
) -> bytes:
    """Build an answer, after a wait in the queue of large answers if it is large.

    client: the connection that must stay open during the wait. errors: the errors of topics that
    could not be created, by name. begin: is called before the answer reads any state.
    """
    context = question.context
    size_bytes = await context.broker.work.finish("Metadata", _answer_bytes(question))
    async with context.broker.large_answers.turn(client, context.budget, size_bytes):
        if begin is not None:
            begin()
        return await _build(question, errors)


async def _build(question: _Question, errors: Mapping[str, int] = NO_ERRORS) -> bytes:
    """Build an answer in steps, with the current state of each partition when its entry is built.

    A topic may be deleted between two steps.
    """
    context = question.context
    values = await context.broker.work.finish("Metadata", _values(question, errors))
    return await encoded(context, api_keys.METADATA, question.version, values)


def _answer_bytes(question: _Question) -> Steps[int]:
    names = list(question.state.topics) if question.names is None else question.names
    return entries_bytes(question.size, names)


def _is_long(question: _Question) -> bool:
    count = 0
    for name in question.state.topics if question.names is None else question.names:
        count += question.size(name)
        if count > ENTRIES_AT_ONCE_MAX:
            return True
    return False


def _values(question: _Question, errors: Mapping[str, int]) -> "Steps[responses.Metadata.Response]":
    context, version, request, names, _ = question
    broker = context.broker
    state = broker.state
    with_operations = getattr(request, "include_topic_authorized_operations", False)
    topics: list[responses.Metadata.MetadataResponseTopic] = []
    access = question.access
    counter = StepCounter(PARTITIONS_PER_STEP)
    for name in list(state.topics) if names is None else names:
        if counter.ends_step():
            yield
        values: responses.Metadata.MetadataResponseTopic
        topic = question.topic(name)
        known_as = topic.name if topic is not None else name
        if (
            access is not None
            and isinstance(known_as, str)
            and not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, known_as)
        ):
            if names is None:
                continue
            topics.append(denied_topic(name))
            continue
        if topic is not None:
            values = yield from topic_values(state, topic, version, counter)
        elif isinstance(name, bytes):
            values = {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topic_id": name}
        elif names is None:  # the topic was deleted after the answer was begun
            continue
        else:
            error = errors.get(name)
            if question.creates_topics and not why_invalid(name) and not question.may_create(name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            values = {**missing_topic(name, error)}
        if with_operations and (topic is not None or isinstance(name, str)):
            operations = operations_on(context, ResourceType.TOPIC, str(known_as))
            values["topic_authorized_operations"] = operations
        topics.append(values)
    with_cluster = getattr(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [
            {"node_id": b.node_id, **address}
            for b in in_order(state.brokers)
            if (not b.is_fenced or b.node_id in broker.recently_fenced_brokers)
            and (address := address_of(b, context.listener)) is not None
        ],
        "cluster_id": state.cluster_id,
        "controller_id": broker.controller_id,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(context) if with_cluster else NOT_ASKED,
    }


def _metadata_error(
    context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
) -> list[Any]:
    version = header.api_version
    if len(body) > BODY_AT_ONCE_BYTES_MAX:  # the dispatcher has handled a refused request
        raise CloseConnection(f"Metadata failed: {error}")
    request = control.decode_request(api_keys.METADATA, version, body)
    return [control.encode_response(api_keys.METADATA, version, _refusal(request, version, error))]


def _refusal(
    request: "requests.MetadataRequest", version: int, error: KafkaError
) -> "responses.Metadata.Response":
    def failed(
        topic: "requests.MetadataRequest.MetadataRequestTopic",
    ) -> "responses.Metadata.MetadataResponseTopic":
        return {
            "error_code": error.number,
            "name": topic.name if version >= 12 else topic.name or "",
            "topic_id": getattr(topic, "topic_id", ZERO_ID),
        }

    return {"error_code": error.number, "topics": Each(failed, request.topics or ())}


RIGHTS = (
    ByHandler(
        (
            (AclOperation.DESCRIBE, ResourceType.TOPIC),
            (AclOperation.CREATE, ResourceType.TOPIC),
            (AclOperation.CREATE, ResourceType.CLUSTER),
        )
    ),
)


def apis(creation: AutoCreation) -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        Api(
            api_keys.METADATA,
            0,
            13,
            MetadataAnswers(creation).handle,
            _metadata_error,
            rights=RIGHTS,
        ),
    )
