"""Events of the nodes' logs, as the page shows them; pure."""

from ..deploy.inspect.logged_events import LoggedEvent
from .addresses import group_address, partition_address, topic_address, transaction_address
from .facts import ClusterEvent


def cluster_event(event: LoggedEvent) -> ClusterEvent:
    """Return the event with the address of the view that shows more of it."""
    return ClusterEvent(
        event.at_ms,
        event.kind,
        event.term("subject"),
        event.sentence,
        _address(event),
        node=event.node,
        line=event.line,
    )


def _address(event: LoggedEvent) -> str:
    if name := event.term("transactional_id"):
        return transaction_address(name)
    if group := event.term("group"):
        return group_address(group)
    topic, partition = event.term("topic"), event.terms.get("partition")
    if topic and isinstance(partition, int):
        return partition_address((topic, partition))
    return topic_address(topic) if topic and event.terms.get("reason") != "deleted" else "/"
