"""The rights of a client to produce to topics, and with its transactional id."""

from ....coordinator.metadata.cluster_state import ClusterState
from ....wire.acls import AclOperation, ResourceType
from ...listener.dispatch import RequestContext
from ...security.access import Access
from ...security.rights import ByHandler
from .leader_append import LeaderAppend
from .verification import TransactionalProducer

RIGHTS = (
    ByHandler(
        (
            (AclOperation.WRITE, ResourceType.TOPIC),
            (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
        )
    ),
)


def may_write(access: Access, state: ClusterState, append: LeaderAppend) -> bool:
    """Return whether the client may write to the topic of a batch.

    Returns True for an unknown topic id, which gets its own error from the append.
    """
    name = append.topic_name
    if append.topic_id is not None:
        topic = state.topic_by_id(append.topic_id)
        name = None if topic is None else topic.name
    if name is None or access.allows(AclOperation.WRITE, ResourceType.TOPIC, name):
        return True
    access.refusal(AclOperation.WRITE, ResourceType.TOPIC, name)  # called for its log line
    return False


def check_transactional(context: RequestContext, producer: TransactionalProducer | None) -> None:
    """Raise TransactionalIdAuthorizationFailed if the client may not use the transactional id."""
    if producer is not None and context.broker.authorizer is not None:
        resource = ResourceType.TRANSACTIONAL_ID, producer.transactional_id
        context.access.require(AclOperation.WRITE, *resource)
