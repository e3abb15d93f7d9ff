"""A broker ends when its data directory has gone, and not when the file of its lock has."""

import asyncio
import contextlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node import __main__ as program
from oncelog.storage.directory.lock import LOCK, DirectoryRemoved


async def test_broker_goes_on_without_its_lock_file_and_ends_without_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "REMOVED_LOOK_S", 0.01)
    data = tmp_path / "data"
    data.mkdir()
    (data / LOCK).touch()
    config: Any = SimpleNamespace(
        log_directory=data, peer_directory=str(tmp_path / "peers"), node_id=1
    )
    looks, exists = 0, Path.exists

    def counted(path: Path) -> bool:
        nonlocal looks
        looks += path == data
        return exists(path)

    monkeypatch.setattr(Path, "exists", counted)
    watching = asyncio.create_task(program._raise_when_removed(config))
    await asyncio.sleep(0)
    (data / LOCK).unlink()
    while looks < 2 and not watching.done():
        await asyncio.sleep(0.01)
    assert not watching.done()
    shutil.rmtree(data)
    with pytest.raises(DirectoryRemoved), contextlib.suppress(TimeoutError):
        await asyncio.wait_for(watching, 10)
