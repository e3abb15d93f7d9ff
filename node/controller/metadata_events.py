"""The event log of metadata changes, which only the active controller writes.

Each event is therefore in the node.log of one node.
"""

from collections.abc import Mapping

from ...coordinator.metadata.cluster_model import (
    NO_LEADER,
    BrokerRegistration,
    Changes,
    PartitionRegistration,
)
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.raft.group import RaftGroup
from ...runtime.event_log import EventLog
from ...runtime.sliced_work import SlicedWork, Steps
from ...wire.identifiers import TopicPartition


class MetadataEvents:
    """The event log of metadata changes.

    It must be created before the Raft group starts.
    """

    def __init__(
        self,
        node_id: int,
        state: ClusterState,
        group: RaftGroup,
        events: EventLog,
        work: SlicedWork,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._group = group
        self._events = events
        self._work = work
        self._brokers: dict[int, BrokerRegistration] = dict(state.brokers)
        state.on_change(self._changed)
        group.on_elected(self._elected)

    def _elected(self, term: int) -> None:
        node = self._node_id
        words = f"node {node} is the active controller in term {term}"
        self._events.tell("controller", f"node {node}", "elected", words, node=node, term=term)

    def _changed(self, changes: Changes) -> None:
        """Log the changes of brokers now, and the changes of topics and partitions in steps."""
        known, self._brokers = self._brokers, dict(self._state.brokers)
        if not self._group.is_leader:
            return
        for node in sorted(changes.brokers_changed):
            self._broker_changed(known.get(node), self._brokers.get(node))
        if changes.topics_created or changes.topics_deleted or changes.partitions_changed:
            self._work.begin("events of the metadata", self._told(changes, self._brokers))

    def _broker_changed(
        self, old: BrokerRegistration | None, new: BrokerRegistration | None
    ) -> None:
        if new is None or (old is not None and old.is_active == new.is_active):
            return
        if new.is_active:
            reason, words = "unfenced", "serves clients"
        elif new.is_shutting_down:
            reason, words = "shutting down", "shuts down, and transfers its leaderships"
        elif old is None or old.broker_epoch != new.broker_epoch:
            reason, words = "registered", "has registered, and leads no partition yet"
        else:
            reason, words = "fenced", "is fenced, because its session has ended"
        node = new.node_id
        words = f"node {node} {words} (broker epoch {new.broker_epoch})"
        self._events.tell(
            "broker", f"node {node}", reason, words, node=node, broker_epoch=new.broker_epoch
        )

    def _told(self, changes: Changes, brokers: Mapping[int, BrokerRegistration]) -> Steps[None]:
        for topic in sorted(changes.topics_created):
            created = self._state.topics.get(topic)  # None if the topic has been deleted since
            if created is not None:
                count = len(created.partitions)
                words = f"topic {topic} was created with {count} partition{'s' * (count != 1)}"
                self._events.tell("topic", topic, "created", words, topic=topic, partitions=count)
            yield
        for topic, _ in changes.topics_deleted:
            words = f"topic {topic} was deleted"
            self._events.tell("topic", topic, "deleted", words, topic=topic)
            yield
        for key, (old, new) in changes.partitions_changed.items():
            if old is None:
                continue
            if old.leader != new.leader:
                self._led(key, old, new, brokers)
            if set(old.isr) != set(new.isr):
                self._in_sync(key, old, new, brokers)
            yield

    def _led(
        self,
        key: TopicPartition,
        old: PartitionRegistration,
        new: PartitionRegistration,
        brokers: Mapping[int, BrokerRegistration],
    ) -> None:
        name = f"{key[0]}/{key[1]}"
        reason = _why_away(brokers.get(old.leader)) if old.leader != NO_LEADER else "no leader"
        if new.leader == NO_LEADER:
            why = _IN_WORDS.get(reason, "cannot lead it")
            words = f"{name} has no leader, because node {old.leader} {why}"
        elif old.leader == NO_LEADER:
            words = f"node {new.leader} leads {name}, which had no leader"
        else:
            because = f", which {_IN_WORDS[reason]}" if reason in _IN_WORDS else ""
            words = f"node {new.leader} leads {name} instead of node {old.leader}{because}"
        self._events.tell(
            "election",
            name,
            reason,
            f"{words} (leader epoch {new.leader_epoch})",
            topic=key[0],
            partition=key[1],
            leader=new.leader,
            before=old.leader,
            leader_epoch=new.leader_epoch,
            isr=new.isr,
        )

    def _in_sync(
        self,
        key: TopicPartition,
        old: PartitionRegistration,
        new: PartitionRegistration,
        brokers: Mapping[int, BrokerRegistration],
    ) -> None:
        name = f"{key[0]}/{key[1]}"
        for node in (*sorted({*old.isr} - {*new.isr}), *sorted({*new.isr} - {*old.isr})):
            has_left = node in old.isr
            reason = "caught up"
            if has_left:
                reason = _why_away(brokers.get(node))
                reason = "fell behind" if reason == "moved" else reason
            verb = "left" if has_left else "joined"
            words = f"node {node} {verb} the ISR of {name}, which is now {_listed(new.isr)}"
            self._events.tell(
                "isr",
                name,
                reason,
                f"{words} ({reason})",
                topic=key[0],
                partition=key[1],
                node=node,
                isr=new.isr,
                partition_epoch=new.partition_epoch,
            )


_IN_WORDS = {"fenced": "is fenced", "shutting down": "shuts down"}


def _why_away(broker: BrokerRegistration | None) -> str:
    if broker is None or broker.is_fenced:
        return "fenced"
    return "shutting down" if broker.is_shutting_down else "moved"


def _listed(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes)) or "empty"
