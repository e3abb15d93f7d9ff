"""The API to find the coordinator of a group or a transactional id.

FindCoordinator 0-6   v1 transactions (KIP-98), v4 several keys (KIP-699), v5 may answer
                      TRANSACTION_ABORTABLE (KIP-890), v6 share groups (KIP-932), which are not
                      supported.

The coordinator of a group is the leader of its partition of __consumer_offsets. The first request
for a group creates that topic. The coordinator of a transactional id is the leader of its shard.
Without a leader the answer is COORDINATOR_NOT_AVAILABLE, and clients retry.

Difference from Kafka: the request that creates the topic waits for the topic, and for the log of
the group's partition if this broker leads it. So the first consumer of a cluster need not retry.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

from ....coordinator.metadata.cluster_model import BrokerRegistration
from ....coordinator.sharding import shard_for
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import ErrorCode, InvalidRequest, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, CloseConnection, RequestContext, control_api
from ...security.rights import EachItem, Resource, Right
from ...services import BrokerServices
from ..answers import code_and_message
from ..metadata.auto_creation import OFFSETS_TOPIC, AutoCreation

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_FROM = 4
KEYS_MAX = 10_000  # keys of one request, whose answer is about 40 times as long


class CoordinatorAddress(TypedDict):
    node_id: int
    host: str
    port: int


NOBODY: CoordinatorAddress = {"node_id": -1, "host": "", "port": -1}


class CoordinatorSearch:
    """The answers to FindCoordinator of one broker."""

    def __init__(self, creation: AutoCreation) -> None:
        self._creation = creation

    async def find(
        self,
        context: RequestContext,
        header: RequestHeader,
        request: "requests.FindCoordinatorRequest",
    ) -> "responses.FindCoordinator.Response":
        """Return the coordinators of the requested groups or transactional ids."""
        broker = context.broker
        await broker.suspected_brokers.settled(context.age_ms)
        if broker.replicas.stalled:
            raise CloseConnection("this broker is cut off from the cluster: ask another")
        key_type = getattr(request, "key_type", GROUP)
        if key_type not in (GROUP, TRANSACTION, SHARE):
            raise InvalidRequest(f"There is no coordinator of kind {key_type}")
        if key_type == GROUP and OFFSETS_TOPIC not in broker.state.topics:
            await self._creation.create(broker, [OFFSETS_TOPIC])
        if key_type == GROUP:
            keys = getattr(request, "coordinator_keys", None)
            await _until_led(broker, [request.key] if keys is None else keys)
        if header.api_version < BATCHED_FROM:
            error, address = _coordinator(context, key_type, request.key)
            return {"error_code": error, "error_message": _message(error), **address}
        if len(request.coordinator_keys) > KEYS_MAX:
            raise InvalidRequest(f"At most {KEYS_MAX} keys can be asked for at once")

        def find(key: str) -> "responses.FindCoordinator.Coordinator":
            error, address = _coordinator(context, key_type, key)
            return {"key": key, "error_code": error, **address}

        return {"coordinators": Each(find, request.coordinator_keys)}


async def _until_led(broker: BrokerServices, group_ids: Sequence[str]) -> None:
    """Wait until this broker serves the partitions of __consumer_offsets that it should lead.

    For a single group only the group's partition is waited for. The wait has a limit.
    """
    topic = broker.state.topics.get(OFFSETS_TOPIC)
    if topic is not None:
        count, awaited = len(topic.partitions), broker.replicas.awaited
        one = len(group_ids) == 1
        indexes = [shard_for(group_ids[0], count)] if one else range(count)
        own = [(OFFSETS_TOPIC, index) for index in indexes]
        await awaited.wait(own, awaited.deadline_ms())


def _coordinator(
    context: RequestContext, key_type: int, key: str
) -> tuple[int, CoordinatorAddress]:
    """Return the error and the address for one key, on the listener of the client."""
    broker = context.broker
    if key_type == GROUP:
        found = _of_group(broker, key)
    elif key_type == TRANSACTION:
        node = broker.transactions.leader_of(key)
        found = None if node is None else broker.state.brokers.get(node)
    else:
        return ErrorCode.INVALID_REQUEST, NOBODY
    endpoint = None if found is None or found.is_fenced else found.endpoint(context.listener)
    if found is None or endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY
    return ErrorCode.NONE, {"node_id": found.node_id, "host": endpoint[0], "port": endpoint[1]}


def _of_group(broker: BrokerServices, group_id: str) -> BrokerRegistration | None:
    topic = broker.state.topics.get(OFFSETS_TOPIC)
    if topic is None:
        return None
    partition = topic.partitions[shard_for(group_id, len(topic.partitions))]
    return broker.state.brokers.get(partition.leader)


def _message(error: int) -> str:
    """Return Kafka's message of an error, which is "NONE" for no error."""
    return "NONE" if error == ErrorCode.NONE else ErrorCode(error).sentence


def _refusal(
    request: "requests.FindCoordinatorRequest", error: KafkaError
) -> "responses.FindCoordinator.Response":
    if not hasattr(request, "coordinator_keys"):
        return {**code_and_message(error), **NOBODY}
    # A request with too many keys is refused by an error for the first ones.
    keys = request.coordinator_keys[:KEYS_MAX]
    return {"coordinators": [{"key": key, **code_and_message(error), **NOBODY} for key in keys]}


def _of_kind(key_type: int, key: str) -> Resource | None:
    """Return the resource of a key, or None for an unknown key type, which the handler refuses."""
    kinds = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
    return (kinds[key_type], key) if key_type in kinds else None


def _of_key(state: object, request: Any, key: str) -> Resource | None:
    return _of_kind(request.key_type, key)


def _of_request(request: Any) -> Resource | None:
    if hasattr(request, "coordinator_keys"):
        return None
    return _of_kind(getattr(request, "key_type", GROUP), request.key)


_KINDS = (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
RIGHTS = (
    Right((AclOperation.DESCRIBE,), _KINDS, _of_request),
    EachItem(AclOperation.DESCRIBE, _KINDS, "coordinator_keys", _of_key),
)


def apis(creation: AutoCreation) -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    find = CoordinatorSearch(creation).find
    return (control_api(api_keys.FIND_COORDINATOR, (0, 6), find, _refusal, rights=RIGHTS),)
