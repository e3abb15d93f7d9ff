"""The request, the context, the decision and the answer of a ConsumerGroupHeartbeat."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....wire.errors import ErrorCode
from .consumer_group import ConsumerRecord
from .known_topics import KnownTopics
from .records import ClassicMetadata, EpochsByTopic, PartitionsByTopic
from .settings import ConsumerGroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """The request ConsumerGroupHeartbeat, in which None and -1 stand for unchanged fields.

    A JoinGroup of the classic protocol is also represented by this class, with `classic` set.
    `member_epoch` is then JOINS if the member has no id yet, and is otherwise ignored.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None  # sorted, without duplicates
    topic_pattern: str | None = None
    server_assignor: str | None = None
    owned: PartitionsByTopic | None = None
    client_id: str = ""
    client_host: str = ""
    classic: ClassicMetadata | None = None

    @property
    def is_full(self) -> bool:
        """Return whether all fields are set, as in the first heartbeat and after an error."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_pattern is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeatAnswer:
    """The answer to ConsumerGroupHeartbeat. `assignment` is None if the member already has it."""

    error: int = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: EpochsByTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatContext:
    """The wall clock, the topics and the settings with which a heartbeat is handled."""

    now_ms: int
    topics: KnownTopics
    settings: ConsumerGroupSettings


@dataclass(slots=True, kw_only=True)
class HeartbeatDecision:
    """The records to append as one batch for a heartbeat, and the answer to send after the commit.

    `member_id` has a session from now on, or is None if the member has left. `rebalance_ms` is the
    timeout for revoking partitions, or None without partitions to revoke. The timeout is used if
    `is_reconciled` is set, which means that this heartbeat has changed the member's assignment.
    `needs_target` and `needs_patterns` request jobs that are too long for one heartbeat.
    """

    answer: ConsumerHeartbeatAnswer
    records: Sequence[ConsumerRecord] = field(default_factory=list[ConsumerRecord])
    member_id: str | None = None
    is_reconciled: bool = False
    rebalance_ms: int | None = None
    needs_target: bool = False
    needs_patterns: bool = False
