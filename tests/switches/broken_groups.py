"""What can be wrong where groups keep their offsets."""

from contextlib import AbstractContextManager
from typing import Any

from oncelog.node.groups.coordinator import GroupCoordinator

from .patching import replaced


def early_commits() -> AbstractContextManager[Any]:
    """An OffsetCommit is answered when the leader has it (KAFKA-20634)."""

    def append_then(self: Any, shard: Any, batch: Any, replayed: Any) -> None:
        self._append(shard, batch)
        replayed(None)

    return replaced(GroupCoordinator, "append_then", append_then)
