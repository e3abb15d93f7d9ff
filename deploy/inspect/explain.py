"""Explanations of a blocked reader and of an open transaction, in sentences, without I/O.

The functions take the facts of transaction_facts.py, and return a heading and lines that begin with
their subject. They use these rules:

  - A reader of committed data stops at the last stable offset: the first offset of the oldest
    transaction that is open in the partition (KIP-98).
  - An open transaction ends when its producer ends it, when its timeout has passed since its
    start, or when a new session of its transactional id begins. In the last two cases its
    producer is fenced by a higher epoch.
  - A prepared transaction (KIP-939) has no timeout: its owner or a person must end it.
  - A decided transaction (Prepare*) ends when a marker is in each of its partitions.
  - A transaction that its coordinator does not know will never be ended by it: it hangs (KIP-664).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...client.cluster_view import PartitionInfo
from ...client.dual_write.names import writer_of
from ...client.groups.descriptions import CONSUMER, GroupDescription
from ...client.transaction_admin import DescribedTransaction, PartitionProducer
from ...wire.identifiers import TopicPartition
from ...wire.printable import printable
from ..cluster.advice import is_of_another, shell_command

ITS_DATABASE = "its database has decided it, or decides then"
NO_TIMEOUT_MS = 2**31 - 1  # of a prepared transaction
PARTITIONS_NAMED_MAX = 6
DECISIONS = {"PrepareCommit": "commit", "PrepareAbort": "abort"}
Line = tuple[str, str]
"""What it is about, and the sentence."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation. `heading` is the state, `lines` are the reasons and the possible actions."""

    heading: str
    lines: tuple[Line, ...] = ()

    def in_words(self) -> str:
        lines = [self.heading, *(f"  {about:<11}  {text}" for about, text in self.lines)]
        return "\n".join(map(printable, lines))


@dataclass(frozen=True, slots=True)
class PartitionTransaction:
    """A transaction that is open in a partition. `transaction` is its state at its coordinator.

    The state is None if no coordinator knows the producer.
    """

    producer: PartitionProducer
    transaction: DescribedTransaction | None

    def is_known(self, partition: TopicPartition) -> bool:
        """Return whether the coordinator has the same transaction, and will end it."""
        known, producer = self.transaction, self.producer
        if known is None or known.producer_id != producer.producer_id:
            return False
        if known.state in DECISIONS:  # its epoch may be the next one already
            return partition in known.partitions and known.producer_epoch >= producer.producer_epoch
        return known.state == "Ongoing" and known.producer_epoch == producer.producer_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The committed offset of a group in a partition. `described` is None for an unknown group.

    is_unstable: the offset is part of an open transaction. holders: the open transactions in the
    partitions of __consumer_offsets that the group's coordinator leads, one of which has the
    offset.
    """

    name: str
    described: GroupDescription | None
    committed: int | None
    is_unstable: bool = False
    holders: tuple[tuple[TopicPartition, PartitionTransaction], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """The facts about a partition. Its offsets are None while it has no leader.

    holders: the open transactions in the partition, oldest first.
    """

    partition: PartitionInfo
    min_insync: int
    log_start: int | None = None
    last_stable: int | None = None
    high_watermark: int | None = None
    holders: tuple[PartitionTransaction, ...] = ()
    group: GroupFacts | None = None
    now_ms: int = 0  # wall clock

    @property
    def key(self) -> TopicPartition:
        return self.partition.topic, self.partition.partition

    @property
    def name(self) -> str:
        return name_of(self.key)


def why(facts: PartitionFacts) -> Explanation:
    """Explain why readers of this partition make no progress."""
    lines: list[Line] = []
    where, stable, high = facts.partition, facts.last_stable, facts.high_watermark
    if stable is None or high is None:
        heading = f"{facts.name} has no leader, so it cannot be read or written."
        replicas = f"{_listed(where.replicas)}; last in sync: {_listed(where.isr)}"
        lines.append(("replicas", replicas))
        node = (*where.isr, "N")[0]
        start = f"broker {node}" if is_of_another() else shell_command("start", node)
        lines.append(("to do", f"start one that was in sync: {start}"))
        return Explanation(heading, (*lines, *_group_lines(facts)))
    short = len(where.isr) < facts.min_insync
    if stable >= high:
        heading = f"{facts.name}: nothing is open; every offset below {high} can be read."
    else:
        heading = (
            f"{facts.name}: readers of committed data stop at offset {stable}. The high "
            f"watermark is {high}."
        )
        if facts.holders:
            first = facts.holders[0]
            lines += _holder_lines(first, facts.key, facts.now_ms)
            lines += _behind(facts.holders[1:])
        elif not short:
            lines.append(("held by", "a transaction that has just ended; run the command again"))
    if short:
        lines.append(
            (
                "replicas",
                f"{len(where.isr)} in sync ({_listed(where.isr)}), and min.insync.replicas "
                f"requires {facts.min_insync}: new records and markers cannot be read yet",
            )
        )
        if missing := [node for node in where.replicas if node not in where.isr]:
            lines.append(("to do", f"start or repair node {_listed(missing)}"))
    return Explanation(heading, (*lines, *_group_lines(facts)))


def explain(
    transaction: DescribedTransaction,
    *,
    now_ms: int,
    last_write_ms: int | None = None,
    leaderless: Sequence[TopicPartition] = (),
) -> Explanation:
    """Explain the state of a transactional id, how its transaction ends, and what is fenced.

    last_write_ms: the wall-clock time of the transaction's newest batch. leaderless: the partitions
    of the transaction without a leader.
    """
    name = transaction.transactional_id
    who = f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}"
    lines: list[Line] = [("coordinator", f"node {transaction.coordinator}")]
    match transaction.state:
        case "Ongoing":
            age = _seconds(now_ms - transaction.start_ms)
            heading = f"{name} has had a transaction open for {age} ({who})."
            lines.append(("partitions", _named(transaction.partitions)))
            if last_write_ms is not None:
                lines.append(("last write", f"{_seconds(now_ms - last_write_ms)} ago"))
            lines += _end_of_open(transaction, now_ms)
        case "PrepareCommit" | "PrepareAbort":
            decision = DECISIONS[transaction.state]
            heading = f"{name}: the decision to {decision} its transaction is made ({who})."
            lines += _end_of_decided(transaction, leaderless)
        case "CompleteCommit" | "CompleteAbort":
            end = "committed" if transaction.state == "CompleteCommit" else "aborted"
            heading = f"{name} has no open transaction; the last one was {end} everywhere ({who})."
        case "Empty":
            heading = f"{name} has no open transaction, and no earlier one in its session ({who})."
        case other:
            heading = f"{name} is {other} ({who})."
    if transaction.producer_epoch > 0:
        lines.append(
            (
                "fenced",
                f"producers with an epoch below {transaction.producer_epoch}, because a newer "
                "session of the id has begun, a timeout has aborted a transaction, or each "
                "transaction raises the epoch (KIP-890)",
            )
        )
    return Explanation(heading, tuple(lines))


def name_of(partition: TopicPartition) -> str:
    return f"{partition[0]}/{partition[1]}"


# --- a transaction that holds a partition


def _holder_lines(
    holder: PartitionTransaction, partition: TopicPartition, now_ms: int
) -> list[Line]:
    producer, known = holder.producer, holder.transaction
    who = f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
    since = f"open here since offset {producer.first_offset}"
    wrote = f"last record written {_seconds(now_ms - producer.last_timestamp_ms)} ago"
    if known is None:
        lines = [("held by", f"{who}, {since}; {wrote}")]
        lines.append(("coordinator", "no coordinator knows this producer: the transaction hangs"))
        return lines + _end_of_hanging(producer, partition)
    name = known.transactional_id
    lines = [("held by", f"{name} ({who}), {since}; {wrote}")]
    if not holder.is_known(partition):
        lines.append(
            (
                "coordinator",
                f"node {known.coordinator} has {name} as {known.state} with epoch "
                f"{known.producer_epoch}, and does not know this transaction, so it hangs",
            )
        )
        return lines + _end_of_hanging(producer, partition)
    lines.append(("coordinator", f"node {known.coordinator}: {known.state}"))
    if known.state in DECISIONS:
        return lines + _end_of_decided(known, ())
    return lines + _end_of_open(known, now_ms)


def _end_of_open(known: DescribedTransaction, now_ms: int) -> list[Line]:
    abort = ("to end it", shell_command("txn abort", known.transactional_id))
    if (writer := writer_of(known.transactional_id)) is not None:
        return [
            ("will end", f"when writer {writer} of a dual write ends it, or its next start does"),
            ("to end it", f"oncelog txn check-back --resolver URL   ({ITS_DATABASE})"),
        ]
    if known.timeout_ms == NO_TIMEOUT_MS:
        return [
            ("will end", "when its owner commits or aborts it; it is prepared, without a timeout"),
            ("to end it", f"{abort[1]}   (its owner may count on a commit)"),
        ]
    left_ms = known.start_ms + known.timeout_ms - now_ms
    timeout = _seconds(known.timeout_ms)
    if left_ms >= 0:
        when = (
            f"in {_seconds(left_ms)} at the earliest: the coordinator aborts it after its timeout "
            f"of {timeout}, at its next check (Kafka: every 10 s), and fences its producer by "
            "epoch "
            f"{known.producer_epoch + 1}"
        )
    else:
        when = (
            f"now: its timeout of {timeout} passed {_seconds(-left_ms)} ago, and the coordinator "
            "aborts it at its next check (Kafka: every 10 s)"
        )
    return [("will end", when), abort]


def _end_of_decided(
    known: DescribedTransaction, leaderless: Sequence[TopicPartition]
) -> list[Line]:
    decision = DECISIONS[known.state]
    lines = [("missing", f"the {decision} marker in {_named(known.partitions)}")]
    if leaderless:
        lines.append(("waits for", f"a leader of {_named(leaderless)}: see oncelog why"))
    lines.append(("will end", "when these are written; the decision is final"))
    return lines


def _end_of_hanging(producer: PartitionProducer, partition: TopicPartition) -> list[Line]:
    return [
        (
            "will end",
            "when the partition's leader detects it, if it searches for hanging transactions",
        ),
        (
            "to end it",
            shell_command(
                "txn abort", partition=name_of(partition), producer_id=producer.producer_id
            ),
        ),
    ]


def _behind(holders: Sequence[PartitionTransaction]) -> list[Line]:
    if not holders:
        return []
    names = [
        h.transaction.transactional_id if h.transaction else f"producer {h.producer.producer_id}"
        for h in holders
    ]
    listed = ", ".join(names[:PARTITIONS_NAMED_MAX])
    more = ", ..." if len(names) > PARTITIONS_NAMED_MAX else ""
    return [("behind it", f"{len(names)} more open transactions: {listed}{more}")]


# --- a group


def _group_lines(facts: PartitionFacts) -> list[Line]:
    group = facts.group
    if group is None:
        return []
    if group.described is None:
        return [("group", f"there is no group {group.name}")]
    lines = [("group", _progress(facts, group))]
    lines += _member_lines(facts.key, group.described)
    if group.is_unstable:
        lines.append(
            (
                "offset",
                "part of an open transaction: clients that require stable offsets wait "
                "(UNSTABLE_OFFSET_COMMIT)",
            )
        )
        known_above = facts.holders[0].transaction if facts.holders else None
        for partition, holder in group.holders:
            found = _holder_lines(holder, partition, facts.now_ms)
            is_explained = len(group.holders) > 1 or holder.transaction == known_above is not None
            lines += found[:1] if is_explained else found
    return lines


def _member_lines(partition: TopicPartition, group: GroupDescription) -> list[Line]:
    members, state = group.members, group.state
    if not group.is_known:
        return [("members", f"it is a {group.type} group, {state}: its members are not requested")]
    if not members:
        return [("members", f"none: the group is {state}")]
    count = f"{len(members)}"
    is_shared = group.type == CONSUMER  # members continue while others give up and take
    if state != "Stable":
        count += f"; the group is {state}"
        if not is_shared:
            return [("members", count)]
    readers = [m for m in members if partition in m.partitions]
    at = f"{readers[0].member_id} at {readers[0].host}" if readers else "none of them"
    lines = [("members", f"{count}; this partition is read by {at}")]
    for member in members:
        behind = f"{member.member_id} (epoch {member.epoch} of {group.epoch})"
        if partition in member.gives_up:
            lines.append(("gives it up", f"{behind}, when its application polls next"))
        elif partition in member.waits_for:
            lines.append(("takes it", f"{behind}, when nobody has it"))
    return lines


def _progress(facts: PartitionFacts, group: GroupFacts) -> str:
    if group.committed is None:
        return f"{group.name} has committed nothing here"
    done = f"{group.name} has committed offset {group.committed}"
    if facts.last_stable is None:
        return done
    behind = facts.last_stable - group.committed
    if behind <= 0:
        return f"{done}: all that is committed has been read"
    if facts.log_start is not None and group.committed < facts.log_start:
        return f"{done}, and the log begins at {facts.log_start}, so its reader starts again"
    return f"{done}: {behind} offsets behind what can be read"


# --- words


def _seconds(ms: int) -> str:
    return f"{max(ms, 0) / 1000:.1f} s" if ms < 10_000 else f"{ms / 1000:,.0f} s"


def _named(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return "no partition yet"
    listed = ", ".join(map(name_of, partitions[:PARTITIONS_NAMED_MAX]))
    more = len(partitions) - PARTITIONS_NAMED_MAX
    return f"{listed} and {more} more" if more > 0 else listed


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"
