"""Conversion of facts to the JSON documents of `/api/...`, from which pages are made, without I/O.

docs/ui.md has the schemas. Times are wall-clock milliseconds, ages and offsets are whole numbers,
and unknown values are null. The parts of the facts are requested at different times. Every document
begins with `as_of_ms`, the earliest of the request times of its parts (in the document of events,
the latest). Parts with a time of their own, such as `log_starts_as_of_ms`, do not count.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..client.groups.descriptions import MemberDescription
from ..client.transaction_admin import DescribedTransaction
from ..deploy.inspect.explain import (
    NO_TIMEOUT_MS,
    Explanation,
    PartitionFacts,
    PartitionTransaction,
    explain,
    why,
)
from ..wire.identifiers import TopicPartition
from .facts import ClusterFacts, ClusterSample, ObservedGroup
from .paging import Document, RowRange
from .troubles import troubles
from .window import TimeWindow

ALL = RowRange()
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
COMPLETE_PARTS = ("cluster", "offsets", "transactions", "groups", "replicas")
RATE_OVER_MS = 10_000


def cluster(facts: ClusterFacts, now_ms: int) -> Document:
    """Return the document of the nodes, the counts and the problems of the cluster."""
    described = facts.cluster
    brokers = {b.node_id: b for b in described.brokers} if described else {}
    nodes = sorted(brokers.keys() | facts.nodes.keys())
    own = ("nodes",) if facts.nodes else ()
    return {
        "as_of_ms": facts.oldest_ms("cluster", "offsets", "transactions", "groups", *own),
        "cluster_id": described.cluster_id if described else None,
        "controller": facts.controller if facts.controller >= 0 else None,
        "nodes": [_node(facts, node, brokers.get(node)) for node in nodes],
        "topics": len({topic for topic, _ in facts.partitions}),
        "partitions": len(facts.partitions),
        "open_transactions": sum(t.state in OPEN for t in facts.transactions.values()),
        "held_back": sum(each.held_back for each in facts.offsets.values()),
        "records_per_s": records_per_s(facts.samples),
        "troubles": [
            {"state": t.state, "about": t.about, "found": t.found, "advice": t.advice}
            for t in troubles(facts, now_ms)
        ],
        "log_starts_as_of_ms": facts.oldest_ms("log starts"),
        "silent": dict(facts.silent),
        "not_exposed": dict(facts.not_exposed),
    }


def topics(facts: ClusterFacts, now_ms: int, rows: RowRange = ALL) -> Document:
    """Return the document with a row for each topic."""
    made: dict[str, Document] = {}

    def empty(topic: str) -> Document:
        row = made[topic] = {
            "topic": topic,
            "is_internal": topic in facts.internal_topics,
            "partitions": 0,
            "replication_factor": 0,
            "leaderless": 0,
            "under_replicated": 0,
            "records": 0,
            "held_back": 0,
            "open_transactions": 0,
        }
        return row

    found = rows.of("topics", sorted({topic for topic, _ in facts.partitions}), empty)
    for key, info in facts.partitions.items():
        row = made.get(key[0])
        if row is None:  # not of these rows
            continue
        offsets = facts.offsets_of(key)
        row["partitions"] += 1
        row["replication_factor"] = max(row["replication_factor"], len(info.replicas))
        row["leaderless"] += info.leader < 0
        row["under_replicated"] += len(info.isr) < len(info.replicas)
        if offsets.high_watermark is None:  # without a leader the number is unknown
            row["records"] = row["held_back"] = None
        elif row["records"] is not None:
            row["records"] += max(0, offsets.high_watermark - (offsets.log_start or 0))
            row["held_back"] += offsets.held_back
        row["open_transactions"] += len(facts.holders.get(key, ()))
    return {
        "as_of_ms": facts.oldest_ms("cluster", "offsets", "transactions"),
        "log_starts_as_of_ms": facts.oldest_ms("log starts"),
        **found,
    }


def partitions(
    facts: ClusterFacts, now_ms: int, topic: str | None = None, rows: RowRange = ALL
) -> Document:
    """Return the document with a row for each partition, of all topics or of one topic."""
    wanted = sorted(key for key in facts.partitions if topic is None or key[0] == topic)
    return {
        "as_of_ms": facts.oldest_ms("cluster", "offsets", "transactions"),
        **_slower_ages(facts),
        **rows.of("partitions", wanted, lambda key: _partition(facts, key, now_ms)),
    }


def partition(facts: ClusterFacts, key: TopicPartition, now_ms: int, min_insync: int) -> Document:
    """Return the document of one partition, with the groups that have committed offsets in it.

    It also explains why readers of the partition wait.
    """
    row = _partition(facts, key, now_ms)
    row["min_insync_replicas"] = min_insync
    row["groups"] = _readers(facts, key)
    row["why"] = _in_words(why(partition_facts(facts, key, now_ms, min_insync)))
    return {
        "as_of_ms": facts.oldest_ms("cluster", "offsets", "transactions", "groups"),
        **_slower_ages(facts),
        "min_insync_replicas_as_of_ms": facts.min_insync_ms.get(key[0], 0),
        "partitions": [row],
    }


def _slower_ages(facts: ClusterFacts) -> Document:
    """Return the request times of log starts and replicas, which are requested less often."""
    return {
        "log_starts_as_of_ms": facts.oldest_ms("log starts"),
        "replicas_as_of_ms": facts.oldest_ms("replicas"),
    }


def partition_facts(
    facts: ClusterFacts, key: TopicPartition, now_ms: int, min_insync: int
) -> PartitionFacts:
    """Return the facts about a partition, in the form that `oncelog why` uses."""
    now_ms, offsets = facts.transactions_ms(now_ms), facts.offsets_of(key)
    return PartitionFacts(
        partition=facts.partitions[key],
        min_insync=min_insync,
        log_start=offsets.log_start,
        last_stable=offsets.last_stable,
        high_watermark=offsets.high_watermark,
        holders=facts.holders.get(key, ()),
        now_ms=now_ms,
    )


def transactions(facts: ClusterFacts, now_ms: int, rows: RowRange = ALL) -> Document:
    """Return the document of all described transactional ids.

    Ids with an open transaction are first, the oldest transaction before others.
    """
    now_ms = facts.transactions_ms(now_ms)
    found = sorted(
        facts.transactions.values(),
        key=lambda t: (t.state not in OPEN, t.start_ms if t.state in OPEN else 0),
    )
    return {
        "as_of_ms": facts.oldest_ms("transactions"),
        **rows.of("transactions", found, lambda each: _transaction(each, now_ms)),
    }


def transaction(facts: ClusterFacts, name: str, now_ms: int) -> Document:
    """Return the document of one transactional id, with the partitions where it is open.

    It also explains how the transaction will end.
    """
    known = facts.transactions[name]
    now_ms = facts.transactions_ms(now_ms)
    leaderless = [k for k in known.partitions if k in facts.partitions and not _is_led(facts, k)]
    holds = [
        {
            "topic": key[0],
            "partition": key[1],
            "first_offset": holder.producer.first_offset,
            "held_back": facts.offsets_of(key).held_back,
        }
        for key, held in sorted(facts.holders.items())
        for holder in held
        if holder.transaction is not None and holder.transaction.transactional_id == name
    ]
    words = explain(known, now_ms=now_ms, leaderless=leaderless)
    row = _transaction(known, now_ms) | {"holds": holds, "why": _in_words(words)}
    as_of_ms = facts.oldest_ms("transactions", "offsets")
    return {"as_of_ms": as_of_ms, "transactions": [row]}


def groups(
    facts: ClusterFacts, now_ms: int, rows: RowRange = ALL, only: str | None = None
) -> Document:
    """Return the document of all groups, or of one group, with members and lags."""
    found = [each for name, each in sorted(facts.groups.items()) if only in (None, name)]
    return {
        "as_of_ms": facts.oldest_ms("groups", "offsets", "transactions"),
        **rows.of("groups", found, lambda each: _group(facts, each)),
    }


def events(
    facts: ClusterFacts, now_ms: int, limit: int = 1_000, window: TimeWindow | None = None
) -> Document:
    """Return the document of the newest `limit` events, of all or of `window`, newest first."""
    known = facts.events
    if window is not None:
        known = [e for e in known if window.start_ms <= e.at_ms <= window.end_ms]
    return {
        "as_of_ms": max(facts.as_of_ms.values(), default=0),
        "events": [
            {
                "at_ms": each.at_ms,
                "kind": each.kind,
                "subject": each.subject,
                "sentence": each.sentence,
                "address": each.address or None,
                "node": each.node,
                "line": each.line or None,
                "alike": each.alike or None,
            }
            for each in sorted(reversed(known[-limit:]), key=lambda e: -e.at_ms)
        ],
    }


def records_per_s(samples: tuple[ClusterSample, ...]) -> float | None:
    """Return by how many offsets the logs grew per second in the last 10 seconds of the samples.

    Markers count like records. If only one sample is so recent, the one before it is used as well.
    Returns None with fewer than two samples.
    """
    if len(samples) < 2:
        return None
    last = samples[-1]
    first = next(s for s in samples if s.at_ms >= last.at_ms - RATE_OVER_MS)
    if first is last:
        first = samples[-2]
    seconds = (last.at_ms - first.at_ms) / 1000
    return round(max(0, last.end_offsets - first.end_offsets) / seconds, 1) if seconds > 0 else None


# --- rows


def _node(facts: ClusterFacts, node: int, broker: Any) -> Document:
    own = facts.nodes.get(node)
    led = sum(p.leader == node for p in facts.partitions.values())
    replicas = sum(node in p.replicas for p in facts.partitions.values())
    in_sync = sum(node in p.isr for p in facts.partitions.values())
    if own is not None and own.state != "running":
        state = own.state
    elif broker is None or broker.is_fenced:
        state = "fenced"
    else:
        state = "serves"
    row: Document = {
        "node": node,
        "address": f"{broker.host}:{broker.port}" if broker else None,
        "state": state,
        "is_controller": node == facts.controller,
        "leaders": led,
        "replicas": replicas,
        "out_of_sync": replicas - in_sync,
        "transactional_ids": sum(t.coordinator == node for t in facts.transactions.values()),
        "groups": sum(g.coordinator == node for g in facts.groups.values()),
        "answer_ms": _rounded(facts.answer_ms.get(node)),
    }
    if own is not None:
        row |= {
            "pid": own.pid,
            "rss_bytes": own.rss_bytes,
            "cpu_s": round(own.cpu_s, 1),
            "up_s": _rounded(own.up_s),
            "faults": own.faults or None,
            "disk": own.disk or None,
            "loop": dict(own.loop) if own.loop is not None else None,
        }
    return row


def _partition(facts: ClusterFacts, key: TopicPartition, now_ms: int) -> Document:
    info, offsets = facts.partitions[key], facts.offsets_of(key)
    now_ms = facts.transactions_ms(now_ms)
    sizes = {entry.node_id: entry for entry in facts.replicas.get(key, ())}
    return {
        "topic": key[0],
        "partition": key[1],
        "leader": info.leader if info.leader >= 0 else None,
        "leader_epoch": info.leader_epoch,
        "log_start": offsets.log_start,
        "last_stable": offsets.last_stable,
        "high_watermark": offsets.high_watermark,
        "held_back": offsets.held_back,
        "replicas": [
            {
                "node": node,
                "is_leader": node == info.leader,
                "in_isr": node in info.isr,
                "size_bytes": sizes[node].size_bytes if node in sizes else None,
                "offset_lag": max(0, sizes[node].offset_lag) if node in sizes else None,
            }
            for node in info.replicas
        ],
        "open_transactions": [_holder(key, h, now_ms) for h in facts.holders.get(key, ())],
    }


def _holder(key: TopicPartition, holder: PartitionTransaction, now_ms: int) -> Document:
    producer, known = holder.producer, holder.transaction
    age_ms = max(0, now_ms - known.start_ms) if known and known.start_ms >= 0 else None
    return {
        "transactional_id": known.transactional_id if known else None,
        "producer_id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "first_offset": producer.first_offset,
        "last_write_ms": producer.last_timestamp_ms if producer.last_timestamp_ms >= 0 else None,
        "is_hanging": not holder.is_known(key),
        "age_ms": age_ms,
        "ends_in_ms": _ends_in_ms(known, now_ms) if known else None,
    }


def _transaction(known: DescribedTransaction, now_ms: int) -> Document:
    is_open = known.state in OPEN
    return {
        "transactional_id": known.transactional_id,
        "producer_id": known.producer_id,
        "epoch": known.producer_epoch,
        "state": known.state,
        "coordinator": known.coordinator,
        "age_ms": max(0, now_ms - known.start_ms) if is_open and known.start_ms >= 0 else None,
        "timeout_ms": None if known.timeout_ms == NO_TIMEOUT_MS else known.timeout_ms,
        "ends_in_ms": _ends_in_ms(known, now_ms),
        "partitions": [{"topic": topic, "partition": index} for topic, index in known.partitions],
    }


def _ends_in_ms(known: DescribedTransaction, now_ms: int) -> int | None:
    """Return the ms until the coordinator aborts a transaction because of its timeout.

    Returns None for a transaction without a timeout, and for one that is not ongoing.
    """
    if known.state != "Ongoing" or known.start_ms < 0 or known.timeout_ms == NO_TIMEOUT_MS:
        return None
    return known.start_ms + known.timeout_ms - now_ms


def _group(facts: ClusterFacts, group: ObservedGroup) -> Document:
    described = group.described
    members = described.members if described else ()
    owners = {key: member for member in members for key in member.partitions}
    offsets = [
        {
            "topic": key[0],
            "partition": key[1],
            "member": owners[key].member_id if key in owners else None,
            **_lag(facts, key, group.committed.get(key)),
            "held_by": _held_by(facts, key),
        }
        for key in sorted(group.committed.keys() | owners.keys())
    ]
    return {
        "group": group.name,
        "type": group.type or None,
        "state": group.state,
        "protocol": (described.protocol or None) if described else None,
        "coordinator": group.coordinator,
        "epoch": described.epoch if described else None,
        "target_epoch": described.target_epoch if described else None,
        "lag": _sum(row["lag"] for row in offsets),
        "lag_to_last_stable": _sum(row["lag_to_last_stable"] for row in offsets),
        "members": [_member(each) for each in members],
        "offsets": offsets,
    }


def _member(member: MemberDescription) -> Document:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "partitions": _pairs(member.partitions),
        "target": None if member.target is None else _pairs(member.target),
        "gives_up": _pairs(member.gives_up),
        "waits_for": _pairs(member.waits_for),
    }


def _readers(facts: ClusterFacts, key: TopicPartition) -> list[Document]:
    return [
        {"group": name, "state": group.state, **_lag(facts, key, group.committed[key])}
        for name, group in sorted(facts.groups.items())
        if key in group.committed
    ]


def _lag(facts: ClusterFacts, key: TopicPartition, committed: int | None) -> Document:
    offsets = facts.offsets_of(key)
    return {
        "committed": committed,
        "end": offsets.high_watermark,
        "last_stable": offsets.last_stable,
        "lag": _behind(committed, offsets.high_watermark),
        "lag_to_last_stable": _behind(committed, offsets.last_stable),
    }


def _held_by(facts: ClusterFacts, key: TopicPartition) -> str | None:
    """Return the id of the transaction at which a partition's readers wait, or None if unknown."""
    holders = facts.holders.get(key, ())
    known = holders[0].transaction if holders else None
    return None if known is None else known.transactional_id


def _behind(offset: int | None, end: int | None) -> int | None:
    return None if offset is None or end is None else max(0, end - offset)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _pairs(keys: Iterable[TopicPartition]) -> list[Document]:
    return [{"topic": topic, "partition": index} for topic, index in keys]


def _in_words(words: Explanation) -> Document:
    lines: list[Mapping[str, str]] = [{"about": a, "sentence": s} for a, s in words.lines]
    return {"heading": words.heading, "lines": lines}


def _is_led(facts: ClusterFacts, key: TopicPartition) -> bool:
    return facts.partitions[key].leader >= 0


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
