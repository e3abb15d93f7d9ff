"""The parts of a broker that the leader of a transaction shard uses."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ...runtime.event_log import EventLog
from ...runtime.fault_point import FaultPoint
from ...runtime.sliced_work import SlicedWork
from .marker_sender import MarkerSender


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPorts:
    """The parts of a broker that all its shard leaders use.

    wall_ms, advanced_since_ms: methods of the broker's `Clock`.
    serves_v2: returns whether the finalized transaction.version is above 0.
    """

    wall_ms: Callable[[], int]
    advanced_since_ms: Callable[[int], int]
    next_producer_id: Callable[[], Awaitable[int]]
    markers: MarkerSender
    fault_point: FaultPoint
    events: EventLog
    work: SlicedWork = field(default_factory=SlicedWork)
    serves_v2: Callable[[], bool] = lambda: True
