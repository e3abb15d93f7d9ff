"""The messages of ConsumerGroupHeartbeat: request, answer, the broker's context and decision."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....wire.errors import ErrorCode
from .consumer_group import ConsumerRecord
from .known_topics import KnownTopics
from .records import ClassicMetadata, EpochsByTopic, PartitionsByTopic
from .settings import ConsumerGroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat; None and -1 stand for unchanged fields.

    The JoinGroup of a member of the classic protocol has the same fields, and `classic`; its member
    epoch is JOINS if the member has no id yet, and is otherwise ignored.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None  # sorted, each once
    topic_pattern: str | None = None
    server_assignor: str | None = None
    owned: PartitionsByTopic | None = None
    client_id: str = ""
    client_host: str = ""
    classic: ClassicMetadata | None = None

    @property
    def is_full(self) -> bool:
        """Return whether all fields are given, as at first and after an error."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_pattern is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatAnswer:
    """The answer; `assignment` is None where the member has it already."""

    error: int = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: EpochsByTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatContext:
    """The circumstances of a decision: the wall clock, the topics, the configuration."""

    now_ms: int
    topics: KnownTopics
    settings: ConsumerGroupSettings


@dataclass(slots=True, kw_only=True)
class HeartbeatDecision:
    """The outcome of a heartbeat: records to append as one batch, and the answer for afterwards.

    `member_id` has a session from now on, None if it has left. `rebalance_ms` is how long it may
    take to revoke partitions, None if there are none; it counts if `is_reconciled` says that this
    heartbeat has changed the member's assignment. `needs_target` and `needs_patterns` request work
    that is too long for one heartbeat.
    """

    answer: ConsumerHeartbeatAnswer
    records: Sequence[ConsumerRecord] = field(default_factory=list[ConsumerRecord])
    member_id: str | None = None
    is_reconciled: bool = False
    rebalance_ms: int | None = None
    needs_target: bool = False
    needs_patterns: bool = False
