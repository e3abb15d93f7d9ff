"""Test that a broker stops when its data directory was emptied, moved or replaced.

A lock file that was removed alone is created again.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node import __main__ as program
from oncelog.storage.checkpoint import META_PROPERTIES
from oncelog.storage.directory.lock import (
    LOCK,
    DirectoryInUse,
    DirectoryRemoved,
    lock_inode,
    take_lock,
)

from ..awaiting import until


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a locked data directory. The broker checks all the time for its removal."""
    monkeypatch.setattr(program, "REMOVED_LOOK_S", 0.01)
    data = tmp_path / "data"
    data.mkdir()
    (data / META_PROPERTIES).touch()
    take_lock(data)
    return data


def watched(data: Path) -> asyncio.Task[None]:
    config: Any = SimpleNamespace(
        log_directory=data, peer_directory=str(data.parent / "peers"), node_id=1
    )
    return asyncio.create_task(program._raise_when_removed(config))


async def test_lock_file_removed_by_a_cleanup_is_recreated(data: Path) -> None:
    watching = watched(data)
    await asyncio.sleep(0)
    (data / LOCK).unlink()
    await until(lambda: lock_inode(data) is not None)
    with pytest.raises(DirectoryInUse):
        take_lock(data)
    assert not watching.done()
    watching.cancel()


def empty(data: Path) -> None:
    for file in (LOCK, META_PROPERTIES):
        (data / file).unlink()


def move(data: Path) -> None:
    data.rename(data.with_name("old"))


def replace(data: Path) -> None:
    move(data)
    data.mkdir()
    (data / META_PROPERTIES).touch()


@pytest.mark.parametrize("loss", [empty, move, replace])
async def test_broker_with_a_removed_data_directory_stops(
    data: Path, loss: Callable[[Path], None]
) -> None:
    watching = watched(data)
    await asyncio.sleep(0)
    loss(data)
    with pytest.raises(DirectoryRemoved):
        await asyncio.wait_for(watching, 10)
