"""Test a blocking pool, and the close of its writers, with an interruption at each point."""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from oncelog.client import BlockingDualWriter, BlockingWriterPool, blocking_producer, loop_thread
from oncelog.client.dual_write import blocking_writer, connection_flow
from oncelog.client.writer_pool import blocking_pool, pool_names
from oncelog.client.writer_pool.pool_names import NoWriterFree

from ...interruptions import interrupted
from ..dual_write.ledger import Ledger, sqlite_ledger

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("dual_write"),
    pytest.mark.filterwarnings("ignore:coroutine"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
POOL = blocking_pool.__file__, pool_names.__file__
WRITER = (
    blocking_writer.__file__,
    connection_flow.__file__,
    blocking_producer.__file__,
    loop_thread.__file__,
)
TIMEOUT_S = 10.0


class Connections:
    """Opens connections to one database, and knows those that are open."""

    def __init__(self, path: Path) -> None:
        self._path, self._opened = path, list[sqlite3.Connection]()

    def __call__(self) -> sqlite3.Connection:
        self._opened.append(sqlite3.connect(self._path, check_same_thread=False))
        return self._opened[-1]

    @property
    def open_count(self) -> int:
        count = 0
        for each in self._opened:
            try:
                count += bool(each.execute("SELECT 1"))
            except sqlite3.ProgrammingError:
                continue
        return count


@pytest.fixture
def connections(tmp_path: Path) -> Connections:
    return Connections(tmp_path / "ledger")


@pytest.fixture
def rows(tmp_path: Path) -> Ledger:
    return sqlite_ledger(tmp_path / "ledger").create()


@pytest.fixture
def pool(bootstrap: str, topic: str, connections: Connections) -> Generator[BlockingWriterPool]:
    with BlockingWriterPool(bootstrap, topic, 1, connections, acquire_timeout_ms=2_000) as made:
        yield made


def transfer(pool: BlockingWriterPool, rows: Ledger, number: int) -> None:
    with pool.transaction() as work:
        work.execute(rows.insert, (number, 5))


def test_pool_lends_its_writer_after_a_block_that_was_interrupted_anywhere(
    pool: BlockingWriterPool, rows: Ledger
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        number += 1
        is_whole = not interrupted(lambda: transfer(pool, rows, -number), number, POOL)  # noqa: B023
        transfer(pool, rows, number)
    assert number > 10
    assert [each for each in rows.rows() if each > 0] == list(range(1, number + 1))


def test_pool_lends_its_writer_after_a_wait_that_was_interrupted_anywhere(
    pool: BlockingWriterPool, rows: Ledger
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        number += 1
        held, leave = threading.Event(), threading.Event()

        def hold(held: threading.Event = held, leave: threading.Event = leave) -> None:
            with pool.acquire():
                held.set()
                leave.wait(TIMEOUT_S)

        def wait() -> None:
            with pool.acquire(timeout_ms=5):
                pass

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(TIMEOUT_S)
        try:
            assert interrupted(wait, number, POOL)
        except NoWriterFree:
            is_whole = True
        leave.set()
        holder.join(TIMEOUT_S)
        transfer(pool, rows, number)
    assert number > 10


def no_producers_since(before: set[threading.Thread], number: int) -> None:
    """Wait for the ends of producers, except those that other tests have left in this process."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while any(each.name == "oncelog-producer" for each in {*threading.enumerate()} - before):
        assert time.monotonic() < deadline_s, number
        time.sleep(0.001)


def opened_pool(bootstrap: str, topic: str, connections: Connections) -> BlockingWriterPool:
    pool = BlockingWriterPool(bootstrap, topic, 2, connections)
    pool.start()
    return pool


def opened_writer(bootstrap: str, topic: str, connections: Connections) -> BlockingDualWriter:
    writer = BlockingDualWriter(bootstrap, topic, connections)
    writer.start()
    return writer


@pytest.mark.parametrize(
    ("opened", "files"), [(opened_writer, WRITER), (opened_pool, (*POOL, *WRITER[:2]))]
)
def test_second_close_after_an_interrupted_close_ends_everything(
    bootstrap: str,
    topic: str,
    connections: Connections,
    opened: Callable[..., BlockingDualWriter | BlockingWriterPool],
    files: tuple[str, ...],
) -> None:
    number, is_whole, before = 0, False, set(threading.enumerate())
    while not is_whole:
        number += 1
        client = opened(bootstrap, topic, connections)
        assert connections.open_count
        is_whole = not interrupted(client.close, number, files)
        client.close()
        assert not connections.open_count, number
        no_producers_since(before, number)
    assert number > 10


def test_close_after_an_interrupted_start_of_a_writer_ends_everything(
    bootstrap: str, topic: str, connections: Connections
) -> None:
    number, is_whole, before = 0, False, set(threading.enumerate())
    while not is_whole:
        number += 1
        with BlockingWriterPool(bootstrap, topic, 1, connections) as pool:
            pool._names.slots[0].is_orphan = True

            def renew(pool: BlockingWriterPool = pool) -> None:
                with pool.acquire():
                    pass

            is_whole = not interrupted(renew, number, POOL)
        assert not connections.open_count, number
        no_producers_since(before, number)
    assert number > 10
