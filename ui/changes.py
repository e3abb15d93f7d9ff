"""Events as sentences, from the differences between two states of a cluster, without I/O.

An event has the time of the later state, so it may be late by the time between the two states.
Changes that begin and end between the two are not seen.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..client.groups.descriptions import GroupDescription
from ..client.transaction_admin import DescribedTransaction
from ..deploy.inspect.explain import NO_TIMEOUT_MS, name_of
from ..wire.identifiers import TopicPartition
from .addresses import group_address, partition_address, topic_address, transaction_address
from .facts import ClusterEvent, ClusterFacts

NAMED_MAX = 4
ABORTED = ("PrepareAbort", "CompleteAbort")


def changes(part: str, before: ClusterFacts, after: ClusterFacts, at_ms: int) -> list[ClusterEvent]:
    """Return the events that one part of the facts shows between two states of a cluster.

    The first facts of a part show no event.
    """
    if part not in before.as_of_ms:
        return []
    match part:
        case "cluster":
            return [*_brokers(before, after, at_ms), *_partitions(before, after, at_ms)]
        case "transactions":
            return list(_transactions(before, after, at_ms))
        case "groups":
            return list(_groups(before, after, at_ms))
        case "nodes":
            return list(_nodes(before, after, at_ms))
        case _:
            return []


def rise(before: ClusterFacts, after: ClusterFacts, name: str) -> float:
    """Return by how much the counter `name` of all nodes has risen between two states.

    The counter of a restarted node began at zero, so the whole new value is added. A node without
    the counter in one of the states is left out.
    """
    total = 0.0
    for node_id, new in after.nodes.items():
        old = before.nodes.get(node_id)
        if old is None or name not in old.traffic or name not in new.traffic:
            continue
        was, is_now = old.traffic[name], new.traffic[name]
        total += is_now - was if is_now >= was else is_now
    return total


def _brokers(before: ClusterFacts, after: ClusterFacts, at_ms: int) -> Iterator[ClusterEvent]:
    if before.controller != after.controller and after.controller >= 0:
        words = f"node {after.controller} is the controller; before it was node {before.controller}"
        yield ClusterEvent(at_ms, "controller", f"node {after.controller}", words, "/")
    if before.cluster is None or after.cluster is None:
        return
    old = {b.node_id: b.is_fenced for b in before.cluster.brokers}
    new = {b.node_id: b.is_fenced for b in after.cluster.brokers}
    for node in sorted(old.keys() | new.keys()):
        was, is_now = old.get(node, True), new.get(node, True)
        if was != is_now:
            words = "is fenced or stopped, and serves no client" if is_now else "serves"
            yield ClusterEvent(at_ms, "broker", f"node {node}", f"node {node} {words}", "/")


def _partitions(before: ClusterFacts, after: ClusterFacts, at_ms: int) -> Iterator[ClusterEvent]:
    moved: dict[tuple[int, int], list[TopicPartition]] = defaultdict(list)
    left: dict[int, list[TopicPartition]] = defaultdict(list)
    joined: dict[int, list[TopicPartition]] = defaultdict(list)
    for key, new in after.partitions.items():
        old = before.partitions.get(key)
        if old is None:
            continue
        if old.leader != new.leader:
            moved[old.leader, new.leader].append(key)
        for node in set(old.isr) - set(new.isr):
            left[node].append(key)
        for node in set(new.isr) - set(old.isr):
            joined[node].append(key)
    for (old_leader, new_leader), keys in sorted(moved.items()):
        came = f"from node {old_leader}" if old_leader >= 0 else "after none"
        led = f"led by node {new_leader}" if new_leader >= 0 else "without a leader"
        words = f"{_named(keys)}: {led}, {came}"
        yield ClusterEvent(at_ms, "election", _named(keys, 1), words, _first_address(keys))
    for found, verb in ((left, "left"), (joined, "joined")):
        for node, keys in sorted(found.items()):
            words = f"node {node} {verb} the ISR of {_named(keys)}"
            yield ClusterEvent(at_ms, "isr", f"node {node}", words, _first_address(keys))
    old_topics = {topic for topic, _ in before.partitions}
    new_topics = {topic for topic, _ in after.partitions}
    for topic in sorted(new_topics - old_topics):
        yield ClusterEvent(
            at_ms, "topic", topic, f"topic {topic} was created", topic_address(topic)
        )
    for topic in sorted(old_topics - new_topics):
        yield ClusterEvent(at_ms, "topic", topic, f"topic {topic} was deleted", "/topics")


def _transactions(before: ClusterFacts, after: ClusterFacts, at_ms: int) -> Iterator[ClusterEvent]:
    for name, new in after.transactions.items():
        old = before.transactions.get(name)
        if old is None or old == new:
            continue
        found = _of_transaction(old, new, at_ms)
        if found is not None:
            kind, words = found
            yield ClusterEvent(at_ms, kind, name, f"{name}: {words}", transaction_address(name))


def _of_transaction(
    old: DescribedTransaction, new: DescribedTransaction, at_ms: int
) -> tuple[str, str] | None:
    epochs = f"epoch {old.producer_epoch} to {new.producer_epoch}"
    if new.state in ABORTED and (old.state not in ABORTED or old.start_ms != new.start_ms):
        has_timeout = old.timeout_ms != NO_TIMEOUT_MS
        if old.state == "Ongoing" and has_timeout and old.start_ms + old.timeout_ms <= at_ms:
            seconds = old.timeout_ms / 1000
            words = f"aborted after its timeout of {seconds:g} s, its producer fenced ({epochs})"
            return "abort", words
        return "abort", f"its transaction was aborted ({epochs})"
    if new.state == "PrepareEpochFence":
        return "fence", f"a newer session fences its producer ({epochs})"
    if new.state == "Empty" and new.producer_epoch != old.producer_epoch:
        return "fence", f"a newer session began, an older producer is fenced ({epochs})"
    return None


def _groups(before: ClusterFacts, after: ClusterFacts, at_ms: int) -> Iterator[ClusterEvent]:
    for name, new in after.groups.items():
        old = before.groups.get(name)
        address = group_address(name)
        if old is None:
            yield ClusterEvent(at_ms, "group", name, f"group {name} was created", address)
        elif old.described is not None and new.described is not None:
            words = _of_group(old.described, new.described)
            if words:
                yield ClusterEvent(at_ms, "group", name, f"group {name}: {words}", address)
    for name in before.groups.keys() - after.groups.keys():
        yield ClusterEvent(at_ms, "group", name, f"group {name} is gone", "/groups")


def _of_group(old: GroupDescription, new: GroupDescription) -> str:
    found: list[str] = []
    before = {m.member_id: m for m in old.members}
    after = {m.member_id: m for m in new.members}
    if came := sorted(after.keys() - before.keys()):
        found.append(f"joined by {_listed(came)}")
    if left := sorted(before.keys() - after.keys()):
        found.append(f"left by {_listed(left)}")
    changed = sum(after[m].partitions != before[m].partitions for m in after if m in before)
    if changed:
        found.append(f"{changed} member{'s' * (changed != 1)} got other partitions")
    if old.state != new.state:
        found.append(f"{old.state} to {new.state}")
    if new.epoch is not None and old.epoch is not None and new.epoch > old.epoch:
        found.append(f"group epoch {old.epoch} to {new.epoch}")
    return "; ".join(found)


def _nodes(before: ClusterFacts, after: ClusterFacts, at_ms: int) -> Iterator[ClusterEvent]:
    for node_id, new in after.nodes.items():
        old = before.nodes.get(node_id)
        if old is None:
            continue
        if old.state != new.state:
            words = f"node {node_id} is {new.state}; before it was {old.state}"
            yield ClusterEvent(at_ms, "node", f"node {node_id}", words, "/")
        elif old.pid != new.pid:
            words = f"node {node_id} was started again (pid {old.pid} to {new.pid})"
            yield ClusterEvent(at_ms, "node", f"node {node_id}", words, "/")


def _named(keys: Iterable[TopicPartition], limit: int = NAMED_MAX) -> str:
    """Return text with the names of at most `limit` partitions, and how many more there are.

    Partitions of internal topics are last.
    """
    ordered = sorted(keys, key=lambda key: (key[0].startswith("__"), key))
    return _listed([name_of(key) for key in ordered], limit)


def _listed(names: list[str], limit: int = NAMED_MAX) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _first_address(keys: Iterable[TopicPartition]) -> str:
    return partition_address(min(keys, key=lambda key: (key[0].startswith("__"), key)))
