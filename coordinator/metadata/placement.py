"""The placement of the replicas of new partitions.

Each partition starts one broker further than the previous one, so that leaders are evenly
distributed. With every full round the followers shift by one, so that the load of a failed leader
is distributed over all other brokers. If every broker has a rack, the order alternates between
racks, and no rack gets a second replica before each rack has one. A fenced broker is chosen only if
there are not enough others, and never as the first replica.

Kafka's placer (StripedReplicaPlacer) uses random numbers. Here the start is a counter in the
replicated state, because every node must compute the same placement.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...wire.errors import InvalidReplicationFactor


class UsableBroker(NamedTuple):
    """A broker that can hold replicas."""

    node_id: int
    rack: str | None
    is_fenced: bool


def place(
    brokers: Sequence[UsableBroker], *, partition_count: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition, with the preferred leader first.

    start: the number of partitions placed before. Raises InvalidReplicationFactor.
    """
    unfenced = [broker for broker in brokers if not broker.is_fenced]
    fenced = [broker for broker in brokers if broker.is_fenced]
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log "
            f"directories cordoned."
        )
    if not unfenced:
        raise InvalidReplicationFactor("All brokers are fenced or shutting down.")
    ring = _ring(unfenced)
    reserve = _ring(fenced)
    # Placements repeat after some rounds, so that a topic of thousands of partitions has few of
    # them.
    made: dict[tuple[int, int, int], tuple[int, ...]] = {}
    placed: list[tuple[int, ...]] = []
    for position in range(start, start + partition_count):
        rounds, first = divmod(position, len(ring))
        turns = (first, rounds % max(1, len(ring) - 1), position % max(1, len(reserve)))
        if turns not in made:
            made[turns] = _replicas(ring, reserve, replication_factor, turns)
        placed.append(made[turns])
    return placed


def _ring(brokers: list[UsableBroker]) -> list[UsableBroker]:
    """Return the brokers by id or, if all of them have racks, alternating between racks."""
    ordered = sorted(brokers)
    if any(broker.rack is None for broker in ordered):
        return ordered
    racks: dict[str | None, list[UsableBroker]] = {}
    for broker in sorted(ordered, key=lambda broker: (broker.rack or "", broker.node_id)):
        racks.setdefault(broker.rack, []).append(broker)
    return [
        rack[turn]
        for turn in range(max((len(rack) for rack in racks.values()), default=0))
        for rack in racks.values()
        if turn < len(rack)
    ]


def _replicas(
    ring: list[UsableBroker],
    reserve: list[UsableBroker],
    replication_factor: int,
    turns: tuple[int, int, int],
) -> tuple[int, ...]:
    first, follower_shift, reserve_shift = turns
    followers = ring[first + 1 :] + ring[:first]
    chosen = [ring[first]]
    for candidates, shift in ((followers, follower_shift), (reserve, reserve_shift)):
        _choose(chosen, candidates[shift:] + candidates[:shift], replication_factor)
    return tuple(broker.node_id for broker in chosen)


def _choose(
    chosen: list[UsableBroker], candidates: list[UsableBroker], replication_factor: int
) -> None:
    """Move candidates to `chosen` until it has `replication_factor` brokers.

    The next is the first candidate in the least used rack.
    """
    has_racks = all(broker.rack is not None for broker in (*chosen, *candidates))
    while candidates and len(chosen) < replication_factor:
        used = [broker.rack for broker in chosen] if has_racks else []
        best = min(candidates, key=lambda broker: used.count(broker.rack))
        candidates.remove(best)
        chosen.append(best)
