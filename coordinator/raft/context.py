"""What the parts of one group on one node share."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from .library import RaftCore
from .messages import Message
from .settings import RaftSettings
from .wal.group_log import GroupLog


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext:
    """Made once when the group begins. Messages posted leave at the end of the turn."""

    group_id: int
    node_id: int
    others: tuple[int, ...]
    core: RaftCore
    log: GroupLog
    settings: RaftSettings
    random: random.Random
    post: Callable[[int, Message], None]
    post_durable: Callable[[int, Message], None]  # not before everything recorded is on disk

    @property
    def majority(self) -> int:
        return (len(self.others) + 1) // 2 + 1
