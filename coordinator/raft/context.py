"""The objects that the components of one Raft group share on a node, and the group's listeners."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ...runtime.fault_point import FaultPoint
from .jobs import Jobs
from .library import RaftCore
from .messages import Message
from .queues import SnapshotQueue
from .settings import RaftSettings
from .wal.disk import Disk
from .wal.group_log import GroupLog
from .wal.journal import Journal


class GroupListeners:
    """The listeners of a group. See RaftGroup.

    `elected` listeners get the term, `applied` listeners the index of the last command. An
    exception of one listener does not affect the others.
    """

    def __init__(self, log: logging.Logger) -> None:
        self.elected: list[Callable[[int], None]] = []
        self.resigned: list[Callable[[], None]] = []
        self.applied: list[Callable[[int], None]] = []
        self._log = log

    def call(self, callbacks: list[Callable[..., None]], *arguments: int) -> None:
        for callback in callbacks:
            try:
                callback(*arguments)
            except Exception:
                self._log.exception("a listener of a Raft group raised an exception")


class RaftHost(Protocol):
    """The methods of the engine that a group calls."""

    node_id: int
    others: tuple[int, ...]
    majority: int
    settings: RaftSettings
    random: random.Random
    fault_point: FaultPoint
    disk: Disk
    journal: Journal
    jobs: Jobs
    snapshots: SnapshotQueue

    def now_ms(self) -> float: ...

    def touch(self, group: Any) -> None: ...

    def after_turn(self, call: Callable[[], None]) -> None: ...

    def post(self, peer: int, group: Any, message: Message, *, durable: bool) -> None: ...

    def may_lead(self, peer: int, now_ms: float, has_decided: bool) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """The shared objects of one group. `post` sends a message after the engine's turn."""

    group_id: int
    node_id: int
    others: tuple[int, ...]
    core: RaftCore
    log: GroupLog
    settings: RaftSettings
    random: random.Random
    post: Callable[[int, Message], None]
    post_durable: Callable[[int, Message], None]  # sent after everything recorded so far is on disk

    @property
    def majority(self) -> int:
        return (len(self.others) + 1) // 2 + 1
