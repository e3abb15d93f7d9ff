"""Turns events in the nodes' logs into events of the page, without I/O."""

from ..deploy.inspect.logged_events import LoggedEvent
from .addresses import group_address, partition_address, topic_address, transaction_address
from .facts import ClusterEvent

NO_LEADER = -1


def cluster_event(event: LoggedEvent) -> ClusterEvent:
    """Return a node's logged event with the address of the view that shows details."""
    return ClusterEvent(
        event.at_ms,
        event.kind,
        event.term("subject"),
        event.sentence,
        _address(event),
        node=event.node,
        line=event.line,
        alike=_alike(event),
    )


def _alike(event: LoggedEvent) -> str:
    """Return a sentence for an election or ISR change that does not name the partition.

    Returns "" for other events, which are not grouped.
    """
    terms, reason = event.terms, event.term("reason")
    if event.kind == "isr":
        isr = terms.get("isr")
        verb = "joined" if isinstance(isr, list) and terms.get("node") in isr else "left"
        return f"node {terms.get('node')} {verb} the ISR ({reason})"
    if event.kind == "election" and "leader" in terms:
        before = terms.get("before")
        came = f"from node {before}" if before != NO_LEADER else "after none"
        led = (
            f"led by node {terms['leader']}" if terms["leader"] != NO_LEADER else "without a leader"
        )
        return f"{led}, {came} ({reason})"
    return ""


def _address(event: LoggedEvent) -> str:
    if name := event.term("transactional_id"):
        return transaction_address(name)
    if group := event.term("group"):
        return group_address(group)
    topic, partition = event.term("topic"), event.terms.get("partition")
    if topic and isinstance(partition, int):
        return partition_address((topic, partition))
    return topic_address(topic) if topic and event.terms.get("reason") != "deleted" else "/"
