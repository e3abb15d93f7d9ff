"""What applies to one consumer group: of its own configurations, or of its broker's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Within the bounds of the broker; all in milliseconds."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
