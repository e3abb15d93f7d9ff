"""What a leader notes: of each broker that follows, and of each follower of a partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .isr_change import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class PeerView:
    """What this broker knows of the others; one object shared by all its partitions.

    `live` maps the brokers that may be in an ISR (registered, neither fenced nor shutting
    down) to their current broker epoch. `last_fetch_ms` is when each last asked for anything:
    an incremental session does not repeat unchanged positions, so a follower at the log end is
    known to be well by its session, not by its partition.
    """

    live: Mapping[int, int] = field(default_factory=dict[int, int])
    last_fetch_ms: dict[int, int] = field(default_factory=dict[int, int])


class FetchedOutcome(NamedTuple):
    """What a follower's fetch came to."""

    is_accepted: bool  # False: unknown replica or a former incarnation, nothing was noted
    high_watermark: int | None = None  # what it rises to; None: it stays
    may_join_isr: bool = False  # worth a call of next_isr_change now


@dataclass(slots=True)
class FollowerProgress:
    """How far one follower is, by its own fetches; Kafka's ReplicaState."""

    node_id: int
    last_caught_up_ms: int
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET
