"""What applies to one consumer group: of its own configurations, or of its broker's."""

from dataclasses import dataclass

from ..assignors.catalogue import ASSIGNORS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Times lie within the bounds of the broker; of the assignors the first is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = (1 << 31) - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
