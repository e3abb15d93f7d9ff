"""The ports of a transaction shard's leader to its broker."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...runtime.event_log import EventLog
from ...runtime.fault_point import FaultPoint
from ...runtime.sliced_work import SlicedWork
from .marker_sender import MarkerSender


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPorts:
    """The ports of all shards of one node. wall_ms, advanced_since_ms: as a broker's `Clock`.

    serves_v2: as DecisionContext.serves_v2.
    """

    wall_ms: Callable[[], int]
    advanced_since_ms: Callable[[int], int]
    next_producer_id: Callable[[], Awaitable[int]]
    markers: MarkerSender
    fault_point: FaultPoint
    events: EventLog
    work: SlicedWork = field(default_factory=SlicedWork)
    serves_v2: Callable[[], bool] = lambda: True
