"""The settings of one consumer group, from the configs of the group or of the broker."""

from dataclasses import dataclass

from ..assignors.catalogue import ASSIGNORS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """The settings of one group, within the broker's bounds. The first assignor is the default."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = (1 << 31) - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
