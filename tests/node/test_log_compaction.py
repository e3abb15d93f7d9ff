"""The background cleaning keeps nothing alive between its looks."""

import asyncio
import weakref
from types import SimpleNamespace
from typing import Any, cast

from oncelog.node.log_compaction import LogCompaction


class Log:
    """Stands for one with open files, which its end closes."""


def test_a_deleted_log_ends_when_it_is_deleted_not_at_the_next_look():
    """Three thousand that ended together at a look closed their files on the loop: 150 ms."""
    looks: list[int] = []

    async def play() -> bool:
        directory = SimpleNamespace(logs={"t-0": Log()})
        ended = weakref.ref(directory.logs["t-0"])
        cleaner = SimpleNamespace(begin=lambda logs, _: looks.append(len(logs)))
        clock = SimpleNamespace(wall_ms=lambda: 0)
        parts: Any = (directory, cleaner, clock, None, None)
        compaction = LogCompaction(*cast(Any, parts), backoff_ms=20)
        while not looks:
            await asyncio.sleep(0.001)
        directory.logs.clear()
        is_gone = ended() is None
        await compaction.stop()
        return is_gone

    assert asyncio.run(play())
    assert looks[0] == 1
