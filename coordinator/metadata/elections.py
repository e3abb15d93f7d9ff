"""The changes of one partition, which are its ISR, its eligible replicas, and its leader.

The safety of all data rests on three facts about a partition.

1. Every member of the ISR has all records below the high watermark, because the leader raises the
   high watermark only to the offset that the whole ISR has.
2. The high watermark does not rise while the ISR has fewer than min.insync.replicas members. A
   replica that leaves such a small ISR, or makes the ISR that small by leaving, therefore still has
   all committed records. It is an eligible leader replica (ELR, KIP-966). Once the ISR is large
   enough the high watermark may rise, and replicas outside the ISR are no longer eligible.
3. A replica that may have lost acknowledged records (its machine lost power, its log failed) leaves
   both lists and becomes a last known eligible replica (KIP-966). The last replica in the two lists
   stays in the ELR. A replica with a replaced data directory has no records. It leaves all three
   lists, unless all of them would be empty.

Therefore a leader is elected from the ISR, or from the ELR if the ISR is empty. If both are empty,
the last known eligible replica that left them last is elected. After a power loss of all nodes with
synced logs, that replica has lost nothing, while replicas that left earlier may have lost records.
Any other election is unclean, loses acknowledged records, and happens only if it is allowed.

All these rules are in `settle`, which every command uses. `settle` is a pure function of one
partition, so commands for thousands of partitions may be applied in any order.
"""

from collections.abc import Collection
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from .cluster_model import NO_LEADER, PartitionRegistration

NO_BROKER = -1


class Election(Enum):
    """The preference of an election.

    ONLINE prefers the present leader, PREFERRED the first replica. UNCLEAN is like ONLINE, but
    elects any live replica if no clean election is possible.
    """

    ONLINE = 0
    PREFERRED = 1
    UNCLEAN = 2


class ElectionRules(NamedTuple):
    """The settings and live brokers by which a partition's leader is elected.

    active: brokers that may lead. min_insync_replicas: as configured, not yet limited by the number
    of replicas.
    """

    active: Collection[int]
    min_insync_replicas: int
    election: Election


def settle(
    before: PartitionRegistration,
    rules: ElectionRules,
    *,
    isr: tuple[int, ...] | None = None,
    replicas: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
    untrusted: int = NO_BROKER,
    emptied: int = NO_BROKER,
    failed: int = NO_BROKER,
) -> PartitionRegistration:
    """Return the partition after a change of its lists or of the brokers.

    Returns `before` if nothing changes. isr, replicas, adding, removing: the changed lists. The
    caller passes only active members in isr. untrusted: a node that may have lost its newest
    records. emptied: a node that has lost all records. failed: a node whose log of this partition
    has failed. If another node leads, the leader epoch rises, so that the failed node may replace
    its log by a copy of the leader's.
    """
    isr = before.isr if isr is None else isr
    replicas = before.replicas if replicas is None else replicas
    adding = before.adding if adding is None else adding
    removing = before.removing if removing is None else removing
    replicas, isr, adding, removing = _complete_reassignment(replicas, isr, adding, removing)
    min_isr = min(rules.min_insync_replicas, len(replicas))
    elr, last_known_elr = _eligible(before, replicas, isr, min_isr, untrusted, emptied)

    candidates = isr or elr or last_known_elr[:1]
    leader = _elect(before, replicas, candidates, rules)
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
        elr = _others(elr, leader)
        last_known_elr = _others(last_known_elr, leader)
        # After an unclean election no other replica is known to have this leader's log. An ISR of
        # the minimum size needs no ELR.
        if leader not in candidates or len(isr) >= min_isr:
            elr = last_known_elr = ()
    if leader != NO_LEADER:
        last_known_leader = NO_LEADER
    elif before.leader != NO_LEADER:
        last_known_leader = before.leader
    else:
        last_known_leader = before.last_known_leader

    after = PartitionRegistration(
        replicas,
        isr,
        leader,
        before.leader_epoch,
        before.partition_epoch,
        elr,
        adding,
        removing,
        last_known_leader,
        last_known_elr,
    )
    # A failed log may be copied only under another leader, for which its old fetches do not count.
    is_emptied_soon = failed in replicas and leader not in (NO_LEADER, failed)
    if after == before and not is_emptied_soon:
        return before
    starts_epoch = leader != before.leader or is_emptied_soon or _drops_a_replica(before, replicas)
    return replace(
        after,
        leader_epoch=before.leader_epoch + starts_epoch,
        partition_epoch=before.partition_epoch + 1,
    )


def _complete_reassignment(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the four lists. Drop the replicas in `removing` if all others are in the ISR."""
    if not adding and not removing:
        return replicas, isr, adding, removing
    staying = tuple(node for node in replicas if node not in removing)
    if not staying or any(node not in isr for node in staying):
        return replicas, isr, adding, removing
    return staying, tuple(node for node in isr if node not in removing), (), ()


def _drops_a_replica(before: PartitionRegistration, replicas: tuple[int, ...]) -> bool:
    """Return whether a replica is dropped, which then deletes its log.

    If the replica is added again soon, it may still fetch under its first assignment, join the ISR,
    and only then delete its log. A new leader epoch ends such fetches.
    """
    return replicas != before.replicas and any(n not in replicas for n in before.replicas)


def _eligible(
    before: PartitionRegistration,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    min_isr: int,
    untrusted: int,
    emptied: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ELR in the order of the replicas, and the last known ELR, the latest first."""
    if len(isr) >= min_isr:
        return (), ()
    before_eligible = (*before.isr, *before.elr)
    holders = tuple(n for n in replicas if n not in isr and n in before_eligible)
    elr = tuple(n for n in holders if n not in (untrusted, emptied))
    once = (*holders, *before.last_known_elr)
    left = tuple(n for n in dict.fromkeys(once) if n in replicas and n not in (*isr, *elr))
    last_known_elr = _others(left, emptied)
    if isr or elr:
        return elr, last_known_elr
    if untrusted in holders:  # the last replica to leave most likely has the newest records
        return (untrusted,), _others(last_known_elr, untrusted)
    return ((), last_known_elr) if last_known_elr else (left, ())


def _others(nodes: tuple[int, ...], one: int) -> tuple[int, ...]:
    return tuple(node for node in nodes if node != one)


def _elect(
    before: PartitionRegistration,
    replicas: tuple[int, ...],
    candidates: tuple[int, ...],
    rules: ElectionRules,
) -> int:
    active = rules.active
    if rules.election is Election.PREFERRED:
        order = (replicas[0], before.leader, *replicas)
    else:
        order = (before.leader, before.last_known_leader, *replicas)
    for node in order:
        if node in candidates and node in active:
            return node
    if rules.election is Election.UNCLEAN:
        for node in (*before.last_known_elr, *replicas):
            if node in active and node in replicas:
                return node
    return NO_LEADER
