"""Test that a block of a dual writer is rolled back if its writer was closed meanwhile."""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import BlockingDualWriter, DualWriter
from oncelog.client.failures import ClientClosed

from .ledger import Ledger, sqlite_ledger

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
ENDS = pytest.mark.parametrize("error", [ClientClosed, ZeroDivisionError])


@pytest.fixture
def rows(tmp_path: Path) -> Ledger:
    return sqlite_ledger(tmp_path / "ledger").create()


def assert_unlocked(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path / "ledger", timeout=0)) as other:
        other.execute("BEGIN IMMEDIATE")


@ENDS
@pytest.mark.parametrize("is_given", [False, True], ids=["own", "given"])
def test_block_whose_writer_another_thread_closed_is_rolled_back(
    bootstrap: str, rows: Ledger, tmp_path: Path, error: type[Exception], *, is_given: bool
) -> None:
    connection: Any = rows.connect() if is_given else rows.connect
    writer = BlockingDualWriter(bootstrap, "closed", connection)
    writer.start()
    with pytest.raises(error), writer.transaction() as block:
        block.execute(rows.insert, (1, 5))
        closing = threading.Thread(target=writer.close)
        closing.start()
        closing.join()
        if error is ZeroDivisionError:
            raise ZeroDivisionError
    assert_unlocked(tmp_path)
    assert (writer.connection is None) != is_given
    assert rows.rows() == []


@ENDS
async def test_block_whose_writer_another_task_closed_is_rolled_back(
    bootstrap: str, rows: Ledger, tmp_path: Path, error: type[Exception]
) -> None:
    connection = rows.connect()
    writer = DualWriter(bootstrap, "closed", connection)
    await writer.start()
    with pytest.raises(error):
        async with writer.transaction() as block:
            await block.execute(rows.insert, (1, 5))
            await asyncio.create_task(writer.close())
            await block.execute(rows.insert, (2, 5))
            if error is ZeroDivisionError:
                raise ZeroDivisionError
    assert_unlocked(tmp_path)
    assert rows.rows() == []
