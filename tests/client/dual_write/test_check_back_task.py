"""Test a check-back task inside a service, and the resolvers that it refuses at its start."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncelog.cli.main import run
from oncelog.client import BlockingCheckBack, CheckBackTask, DatabaseResolver, DualWriter
from oncelog.client.cluster_view import ClusterView
from oncelog.client.connection import BrokerConnection
from oncelog.client.dual_write.resolvers import resolver_of
from oncelog.client.dual_write.stop_words import CheckedBackError
from oncelog.client.failures import ClientClosed
from oncelog.wire.errors import InvalidConfig

from .ledger import Ledger, assert_equal, open_transactions
from .postgresql import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("is_blocking", [False, True], ids=["a task", "a thread"])
async def test_check_back_task_ends_an_open_transaction(
    bootstrap: str, server: PostgresServer, topic: str, is_blocking: bool
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    async with DualWriter(bootstrap, topic, connect) as writer:
        with pytest.raises(CheckedBackError):
            async with writer.transaction() as work:
                await work.execute(ledger.insert, (1, 5))
                await (await work.send(topic, b"1"))
                assert await open_transactions(bootstrap) == [writer.transactional_id]
                resolver = DatabaseResolver(server.connect if is_blocking else connect)
                options: Any = {"older_than_ms": 0, "every_ms": 10, "writer": topic}
                if is_blocking:
                    service = BlockingCheckBack(bootstrap, resolver, **options)
                    await asyncio.to_thread(service.start)
                    try:
                        await until_none_is_open(bootstrap)
                    finally:
                        await asyncio.to_thread(service.close)
                else:
                    async with CheckBackTask(bootstrap, resolver, **options):
                        await until_none_is_open(bootstrap)
        async with writer.transaction() as work:
            await work.execute(ledger.insert, (2, 5))
            await work.send(topic, b"2")
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [2]


async def until_none_is_open(bootstrap: str) -> None:
    async with asyncio.timeout(30):
        while await open_transactions(bootstrap):
            await asyncio.sleep(0.01)


async def test_sqlite_resolver_url_may_have_three_or_four_slashes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a b.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE oncelog_decisions (writer TEXT)")
    connection.close()
    for slashes in ("///", "////"):
        resolver = resolver_of(f"sqlite:{slashes}{str(file).lstrip('/').replace(' ', '%20')}")
        await resolver.check()
        await resolver.close()


def addresses(server: PostgresServer, folder: Path) -> dict[str, str]:
    (folder / "text.db").write_text("no database at all, but long enough to be read as one")
    return {
        f"sqlite:////{folder}/none.db": "unable to open database file",
        f"sqlite:///{folder}/text.db": "file is not a database",
        f"{server.url.rpartition('/')[0]}/nowhere": 'database "nowhere" does not exist',
        "http://127.0.0.1:1/d": "the endpoint cannot answer",
    }


def test_check_back_command_refuses_a_resolver_that_cannot_answer(
    bootstrap: str, server: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for address, words in addresses(server, tmp_path).items():
        command = ["txn", "check-back", "--resolver", address, "--bootstrap", bootstrap]
        assert run(command) == 2
        assert words in " ".join(capsys.readouterr().err.split()), address


def test_check_back_command_warns_about_a_database_without_a_decision_table(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sqlite3.connect(tmp_path / "empty.db").close()
    address = f"sqlite:///{tmp_path}/empty.db"
    command = ["txn", "check-back", "--resolver", address, "--bootstrap", bootstrap, "--once"]
    assert run([*command, "--older-than", "600"]) == 0
    assert "no table of decisions: is it that of the writers?" in "".join(capsys.readouterr())


async def test_check_back_task_with_a_failing_resolver_does_not_start(tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"file:{tmp_path}/none.db?mode=rw", uri=True)

    with pytest.raises(InvalidConfig, match="unable to open"):
        await CheckBackTask(NOWHERE, DatabaseResolver(connect)).start()
    blocking = BlockingCheckBack(NOWHERE, DatabaseResolver(connect))
    with pytest.raises(InvalidConfig, match="unable to open"):
        await asyncio.to_thread(blocking.__enter__)
    with pytest.raises(ClientClosed):
        await asyncio.to_thread(blocking.start)


def test_check_back_close_closes_the_connection_opened_by_its_resolver(
    bootstrap: str, server: PostgresServer
) -> None:
    opened: list[Any] = []

    def connect() -> Any:
        opened.append(server.connect())
        return opened[-1]

    with BlockingCheckBack(bootstrap, DatabaseResolver(connect)):
        assert len(opened) == 1
    assert opened[0].closed


async def test_check_back_task_with_a_wrong_cluster_setting_does_not_start(
    server: PostgresServer, tmp_path: Path
) -> None:
    source = {
        "bootstrap.servers": NOWHERE,
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "typo.pem"),
    }
    opened: list[Any] = []

    def connect() -> Any:
        opened.append(server.connect())
        return opened[-1]

    with pytest.raises(ValueError, match=r"typo\.pem cannot be read"):
        await CheckBackTask(source, DatabaseResolver(connect)).start()
    assert opened[0].closed
    blocking = BlockingCheckBack(source, DatabaseResolver(server.connect))
    with pytest.raises(ValueError, match=r"typo\.pem cannot be read"):
        await asyncio.to_thread(blocking.__enter__)


async def test_check_back_task_started_twice_runs_one_task(tmp_path: Path) -> None:
    alone = asyncio.all_tasks()
    resolver = DatabaseResolver(lambda: sqlite3.connect(tmp_path / "d"))
    service = CheckBackTask(NOWHERE, resolver, every_ms=1)
    await asyncio.gather(service.start(), service.start())
    await service.start()
    assert len(asyncio.all_tasks() - alone) == 1
    await service.close()
    assert asyncio.all_tasks() == alone


@pytest.mark.parametrize("has_view", [False, True], ids=["an address", "a view"])
async def test_check_back_task_after_a_failed_start_starts_again(
    tmp_path: Path, has_view: bool
) -> None:
    alone, opened = asyncio.all_tasks(), []
    service = CheckBackTask(
        ClusterView(NOWHERE) if has_view else NOWHERE,
        DatabaseResolver(lambda: late_database(tmp_path, opened)),
        every_ms=1,
    )
    with pytest.raises(InvalidConfig, match="not up"):
        await service.start()
    await service.start()
    assert len(asyncio.all_tasks() - alone) == 1
    await service.close()
    assert asyncio.all_tasks() == alone


def late_database(folder: Path, opened: list[Any]) -> sqlite3.Connection:
    """Return a connection to a SQLite database. The first call raises OSError instead."""
    if not opened:
        opened.append(None)
        raise OSError("the database is not up")
    opened.append(sqlite3.connect(folder / "d"))
    return opened[-1]


def test_blocking_check_back_after_a_failed_start_starts_again(tmp_path: Path) -> None:
    opened: list[Any] = []
    service = BlockingCheckBack(NOWHERE, DatabaseResolver(lambda: late_database(tmp_path, opened)))
    try:
        with pytest.raises(InvalidConfig, match="not up"):
            service.start()
        service.start()
    finally:
        service.close()
    with pytest.raises(ClientClosed):
        service.start()


async def test_check_back_task_started_twice_concurrently_runs_if_one_start_succeeds(
    tmp_path: Path,
) -> None:
    alone, opened = asyncio.all_tasks(), []
    resolver = DatabaseResolver(lambda: late_database(tmp_path, opened))
    service = CheckBackTask(NOWHERE, resolver, every_ms=1)
    results = await asyncio.gather(service.start(), service.start(), return_exceptions=True)
    assert [type(each) for each in results] == [InvalidConfig, type(None)]
    assert len(asyncio.all_tasks() - alone) == 1
    await service.close()
    assert asyncio.all_tasks() == alone


async def test_check_back_task_after_a_cancelled_run_starts_again(tmp_path: Path) -> None:
    alone = asyncio.all_tasks()
    resolver = DatabaseResolver(lambda: sqlite3.connect(tmp_path / "d"))
    service = CheckBackTask(NOWHERE, resolver, every_ms=1)
    await service.start()
    (task,) = asyncio.all_tasks() - alone
    task.cancel()
    await asyncio.wait([task])
    await service.start()
    assert len(asyncio.all_tasks() - alone) == 1
    await service.close()
    assert asyncio.all_tasks() == alone


async def test_check_back_task_closed_during_its_start_runs_no_task(tmp_path: Path) -> None:
    alone, begun, connected = asyncio.all_tasks(), asyncio.Event(), asyncio.Event()

    async def connect() -> sqlite3.Connection:
        begun.set()
        await connected.wait()
        return sqlite3.connect(tmp_path / "d")

    service = CheckBackTask(NOWHERE, DatabaseResolver(connect), every_ms=1)
    starting = asyncio.create_task(service.start())
    await begun.wait()
    closing = asyncio.create_task(service.close())
    await asyncio.sleep(0)
    connected.set()
    with pytest.raises(ClientClosed):
        await starting
    await closing
    with pytest.raises(ClientClosed):
        await service.start()
    assert asyncio.all_tasks() == alone


async def test_check_back_task_starts_while_the_cluster_is_unreachable(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with CheckBackTask(NOWHERE, DatabaseResolver(server.connect)):
        pass
    assert "a request to the cluster failed" in caplog.text


class Torn(ClusterView):
    """A view of the cluster that raises OSError when it is asked for a broker the second time."""

    questions = 0

    async def any_broker(self) -> BrokerConnection:
        self.questions += 1
        if self.questions == 2:
            raise OSError("too many open files")
        return await super().any_broker()


async def test_check_back_task_continues_after_any_error(
    bootstrap: str, server: PostgresServer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    view = Torn(bootstrap)
    resolver = DatabaseResolver(server.connect)
    async with DualWriter(bootstrap, topic, server.connect) as writer:
        with pytest.raises(CheckedBackError):
            async with writer.transaction() as work:
                await (await work.send(topic, b"1"))
                async with CheckBackTask(view, resolver, older_than_ms=0, every_ms=10):
                    await until_none_is_open(bootstrap)
    await view.close()
    assert view.questions > 2 and "too many open files" in caplog.text
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)


async def test_check_back_task_that_is_cancelled_logs_its_end(
    bootstrap: str, server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with CheckBackTask(bootstrap, DatabaseResolver(server.connect)) as service:
        assert service._task is not None
        service._task.cancel()
        await asyncio.wait([service._task])
    assert "so abandoned transactions stay open: it was cancelled" in caplog.text
    caplog.clear()
    async with CheckBackTask(bootstrap, DatabaseResolver(server.connect)):
        pass
    assert caplog.text == ""
