"""Test resolvers that hang or answer wrongly, and that their messages show no password."""

import asyncio
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.client import DatabaseResolver, HttpResolver
from oncelog.client.dual_write.resolvers import resolver_of, without_password
from oncelog.client.dual_write.steps import DecidedOutcome
from oncelog.wire.errors import InvalidConfig

from .test_check_back import KEY

OK = b"HTTP/1.1 200 OK\r\n\r\n"


@contextmanager
def speaker(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve each connection with `speak`, and yield the server's URL with user and password."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65_536)
                        speak(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://user:hush@127.0.0.1:{listener.getsockname()[1]}/d?token=hush"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def hangs(connection: socket.socket) -> None:
    connection.recv(1)


def drips(first: bytes) -> Callable[[socket.socket], None]:
    def drip(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(b"x")
            time.sleep(0.02)

    return drip


@pytest.mark.parametrize(
    "speak",
    [hangs, drips(b"HTTP/1.1 200 OK\r\nX-"), drips(OK + b'{"outcome": "comm')],
    ids=["says nothing", "drips a header", "drips a body"],
)
async def test_http_resolver_limits_the_time_of_the_whole_answer(
    speak: Callable[[socket.socket], None],
) -> None:
    with speaker(speak) as url:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s") as told:
            await HttpResolver(url, timeout_s=0.3).resolve(KEY)
        assert time.monotonic() - began < 5
        assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "is not followed"),
        (OK + b'{"outcome": "commit"' + b" " * 70_000 + b"}", "more than 65,536 bytes"),
        (OK + b'{"outcome": "comm\xff\xfe"}', "wanted is"),
        (OK + b'{"outcome": ["commit"]}', "wanted is"),
        (OK + b"[" * 60_000, "wanted is"),
        (b"SSH-2.0-OpenSSH\r\n", "/d: "),
        (b"", "/d: "),
    ],
    ids=["redirects", "huge", "no UTF-8", "a list", "deep", "no HTTP", "hangs up"],
)
async def test_http_resolver_raises_for_an_invalid_answer_without_its_secret(
    answer: bytes, words: str
) -> None:
    with speaker(lambda connection: connection.sendall(answer)) as url:
        with pytest.raises((OSError, ValueError), match=words) as told:
            await HttpResolver(url).resolve(KEY)
        assert "hush" not in str(told.value)


async def test_http_resolver_sends_the_login_of_its_address() -> None:
    heard: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.sendall(OK + b'{"outcome": "abort"}')

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65_536))
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        resolver = HttpResolver(f"http://me:p%40ss@127.0.0.1:{port}")
        assert await resolver.resolve(KEY) is DecidedOutcome.ABORTED
        thread.join()
    assert b"Authorization: Basic bWU6cEBzcw==" in heard[0]
    assert heard[0].startswith(b"GET /?transactional_id=oncelog.dual.billing.")


@pytest.mark.parametrize(
    "url", ["mysql://root:hush@db/bank", "root:hush@db", "http://:hush@", "http://a:hush@b:port"]
)
def test_resolver_error_about_a_refused_address_does_not_repeat_the_address(url: str) -> None:
    with pytest.raises(InvalidConfig) as told:
        resolver_of(url)
    assert "hush" not in str(told.value)


async def test_postgresql_resolver_that_is_refused_does_not_show_the_password() -> None:
    pytest.importorskip("psycopg", reason="psycopg is missing (extra: database)")
    for url in ("postgresql://me:hu%zzsh@127.0.0.1:1/x", "postgresql://me:hush@127.0.0.1:1/x"):
        with pytest.raises(ConnectionError) as told:
            await resolver_of(url).resolve(KEY)
        assert "hush" not in str(told.value) and "hu%zzsh" not in str(told.value)
    said = without_password("at x?y in postgresql://me:x%3Fy@h", "postgresql://me:x%3Fy@h")
    assert said == "at *** in postgresql://me:***@h"


async def test_decision_table_passes_a_malicious_name_as_a_parameter_of_the_statement(
    tmp_path: Path,
) -> None:
    """The name is a transactional id of the cluster, and any client may choose its own."""
    from oncelog.client.dual_write import decision_table
    from oncelog.client.dual_write.steps import TransactionKey

    from .ledger import sqlite_ledger
    from .test_decision_table import done

    ledger = sqlite_ledger(tmp_path / "ledger")
    done(ledger, decision_table.create_tables())
    done(ledger, decision_table.database_id("0badcafe"))
    resolver = DatabaseResolver(ledger.connect)
    for name in ("oncelog.dual.'; DROP TABLE oncelog_decisions; --", "oncelog.dual." + "?" * 200):
        with pytest.raises(Exception, match="another database"):
            await resolver.resolve(TransactionKey(name, 1, 1))
    await resolver.close()
    done(ledger, decision_table.write_position("'", "t'; DROP TABLE x; --?%s", 0, 5), commits=True)
    assert done(ledger, decision_table.read_positions("'")) == {("t'; DROP TABLE x; --?%s", 0): 5}
    assert ledger.rows("SELECT count(*) FROM oncelog_decisions") == [1]


def test_http_resolver_that_is_cancelled_leaves_no_thread_waiting() -> None:
    """The thread of a cancelled call ends at `timeout_s`, so that the program can exit."""

    async def ask(url: str) -> None:
        async with asyncio.timeout(0.1):
            await HttpResolver(url, timeout_s=0.5).resolve(KEY)

    with speaker(hangs) as url:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            asyncio.run(ask(url))  # which waits for its threads
        assert time.monotonic() - began < 5


def test_sqlite_setting_changed_between_blocks_is_refused_at_the_commit(tmp_path: Path) -> None:
    from oncelog.client.dual_write.database import Dialect, run
    from oncelog.client.dual_write.flow import drive
    from oncelog.client.dual_write.stop_words import UnsafeDatabase

    connection = sqlite3.connect(tmp_path / "ledger")
    dialect = Dialect(connection)
    drive(run(dialect.begin(connection), connection, dialect))
    drive(run(dialect.before_commit(), connection, dialect))
    connection.commit()
    connection.execute("PRAGMA synchronous=NORMAL")
    drive(run(dialect.begin(connection), connection, dialect))
    with pytest.raises(UnsafeDatabase, match="synchronous is below FULL"):
        drive(run(dialect.before_commit(), connection, dialect))
    connection.close()
