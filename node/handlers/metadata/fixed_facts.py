"""APIs for changes that this cluster does not support, with the answers of Kafka.

AlterReplicaLogDirs 1-2  KIP-113; there is one directory, so a replica in it needs no move.
Create-, Renew-, Expire-, DescribeDelegationToken  KIP-48; refused on every listener, as by Kafka on
                                                   a plain text listener.
AddRaftVoter 0-1, RemoveRaftVoter 0  KIP-853; with kraft.version 0 answered as by Kafka.
UnregisterController 0  a voter has no registration that could be removed.
"""

from collections.abc import Callable
from typing import Any

from ....runtime.steps import StepCounter, Steps
from ....wire.acls import AclOperation
from ....wire.errors import ErrorCode, InvalidRequest, KafkaError, error_for
from ....wire.features import KRAFT_VERSION
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import OPEN, on_cluster
from ...services import BrokerServices
from ..answers import code_only, code_with_message

NO_TIME = -1
ANONYMOUS: dict[str, Any] = {"principal_type": "User", "principal_name": "ANONYMOUS"}
_NO_TOKEN: dict[str, Any] = {
    "error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    "issue_timestamp": NO_TIME,
    "expiry_timestamp": NO_TIME,
    "max_timestamp": NO_TIME,
    **ANONYMOUS,
    **{f"token_requester_{name}": value for name, value in ANONYMOUS.items()},
}


def alter_replica_log_dirs(
    context: RequestContext, header: RequestHeader, request: "requests.AlterReplicaLogDirsRequest"
) -> "Steps[responses.AlterReplicaLogDirs.Response]":
    """Answer each partition once, by its last entry in the request."""
    broker = context.broker
    own = str(broker.config.log_directory.absolute())
    errors: dict[str, dict[int, int]] = {}
    counter = StepCounter()
    for directory in request.dirs:
        is_own = directory.path == own
        for topic in directory.topics:
            answers = errors.setdefault(topic.name, {})
            for index in topic.partitions:
                answers[index] = (
                    _stays(broker, topic.name, index) if is_own else ErrorCode.LOG_DIR_NOT_FOUND
                )
                if counter.ends_step():
                    yield
            if counter.ends_step():
                yield
    return {"results": Each(_moved_topic, errors.items())}


def _moved_topic(
    topic: tuple[str, dict[int, int]],
) -> "responses.AlterReplicaLogDirs.AlterReplicaLogDirTopicResult":
    name, answers = topic
    return {"topic_name": name, "partitions": Each(_moved_partition, answers.items())}


def _moved_partition(
    answer: tuple[int, int],
) -> "responses.AlterReplicaLogDirs.AlterReplicaLogDirPartitionResult":
    index, error = answer
    return {"partition_index": index, "error_code": error}


def _stays(broker: BrokerServices, topic: str, index: int) -> int:
    partition = broker.state.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_here = broker.config.node_id in partition.replicas
    return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE


def _voter_change(what: str) -> Callable[[RequestContext, RequestHeader, Any], Any]:
    def refuse(context: RequestContext, header: RequestHeader, request: Any) -> Any:
        own = context.broker.state.cluster_id
        if request.cluster_id is not None and request.cluster_id != own:
            raise error_for(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{own}"',
            )
        if what == "adding" and not request.listeners:
            raise InvalidRequest(
                "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the "
                "default listener ListenerName(CONTROLLER)"
            )
        reason = (
            "its voters never change"
            if context.broker.state.feature_level(KRAFT_VERSION)
            else "the kraft.version feature is 0"
        )
        raise error_for(
            ErrorCode.UNSUPPORTED_VERSION, f"Cluster doesn't support {what} voter because {reason}"
        )

    return refuse


async def unregister_controller(
    context: RequestContext, header: RequestHeader, request: "requests.UnregisterControllerRequest"
) -> "responses.UnregisterController.Response":
    """Refuse an unknown controller, and the active one. Answer any other voter without an error.

    A voter has no registration, so nothing is removed.
    """
    broker, number = context.broker, request.controller_id
    timeout_ms = broker.config.request_timeout_ms
    quorum = await broker.controller.describe_quorum(timeout_ms=timeout_ms)
    if number not in {voter.node_id for voter in quorum.voters}:
        raise error_for(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {number} is not currently registered.",
        )
    if number == quorum.leader_id:
        raise InvalidRequest("Controller cannot unregister itself while it is active.")
    return {"error_message": ""}


def _no_token(context: RequestContext, header: RequestHeader, request: Any) -> Any:
    return _NO_TOKEN


def _unmoved(
    request: "requests.AlterReplicaLogDirsRequest", error: KafkaError
) -> "responses.AlterReplicaLogDirs.Response":
    errors: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            errors.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, error.number))
    return {"results": Each(_moved_topic, errors.items())}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    altering = (on_cluster(AclOperation.ALTER),)
    return (
        control_api(
            api_keys.ALTER_REPLICA_LOG_DIRS,
            (1, 2),
            alter_replica_log_dirs,
            _unmoved,
            rights=altering,
        ),
        control_api(api_keys.CREATE_DELEGATION_TOKEN, (1, 3), _no_token, code_only, rights=OPEN),
        control_api(api_keys.RENEW_DELEGATION_TOKEN, (1, 2), _no_token, code_only, rights=OPEN),
        control_api(api_keys.EXPIRE_DELEGATION_TOKEN, (1, 2), _no_token, code_only, rights=OPEN),
        control_api(api_keys.DESCRIBE_DELEGATION_TOKEN, (1, 3), _no_token, code_only, rights=OPEN),
        control_api(
            api_keys.ADD_RAFT_VOTER,
            (0, 1),
            _voter_change("adding"),
            code_with_message,
            rights=altering,
        ),
        control_api(
            api_keys.REMOVE_RAFT_VOTER,
            (0, 0),
            _voter_change("removing"),
            code_with_message,
            rights=altering,
        ),
        control_api(
            api_keys.UNREGISTER_CONTROLLER,
            (0, 0),
            unregister_controller,
            code_with_message,
            rights=altering,
        ),
    )
