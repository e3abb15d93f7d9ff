"""A leader's knowledge about the other brokers, and about the followers of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .isr_change import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class PeerView:
    """The state of the other brokers, in one object for all partitions of this broker.

    `live` maps the brokers that may be in an ISR (registered, neither fenced nor shutting down) to
    their current broker epoch. `last_fetch_ms` is the time of each broker's last replica fetch. An
    incremental session does not repeat unchanged positions. Therefore the session, not the
    partition, shows that a follower at the log end is alive.
    """

    live: Mapping[int, int] = field(default_factory=dict[int, int])
    last_fetch_ms: dict[int, int] = field(default_factory=dict[int, int])


class FetchedOutcome(NamedTuple):
    """The outcome of a follower's fetch."""

    is_accepted: bool  # False for an unknown replica or a former incarnation, which is ignored
    high_watermark: int | None = None  # the new value, or None if unchanged
    may_join_isr: bool = False  # True if next_isr_change should be called now


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower, as shown by its fetches (Kafka: ReplicaState)."""

    node_id: int
    last_caught_up_ms: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET
