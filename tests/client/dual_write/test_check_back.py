"""Test the answers of resolvers, repeated check-backs, and the messages of a check-back."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from oncelog.cli.main import run
from oncelog.client import Admin, BlockingDualWriter, CheckBack, DatabaseResolver, HttpResolver
from oncelog.client.dual_write.names import PREFIX, session_id, writer_of
from oncelog.client.dual_write.resolvers import resolver_of
from oncelog.client.dual_write.steps import DecidedOutcome, TransactionKey
from oncelog.client.dual_write.stop_words import CheckedBackError
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import InvalidConfig, InvalidRequest

from .ledger import Ledger, assert_equal, open_transactions, sqlite_ledger
from .postgresql import PostgresServer

KEY = TransactionKey(session_id("billing", "0badcafe", b"\0" * 8), 7, 3)


def test_writer_of_returns_the_writer_name_in_a_transactional_id() -> None:
    assert writer_of(KEY.transactional_id) == "billing"
    assert writer_of(session_id("a.b", "0badcafe", b"12345678")) == "a.b"
    assert writer_of("billing") is None and writer_of(PREFIX + "billing") is None


@contextlib.contextmanager
def endpoint(answers: list[str]) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """Serve each of these answers once, and then the last one forever.

    Yield the URL, and the list of received questions.
    """
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(parse_qs(urlsplit(self.path).query))
            text = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(500 if text == "500" else 200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/decisions", asked
        finally:
            server.shutdown()
            thread.join()


async def test_http_resolver_accepts_three_outcomes_and_raises_for_other_answers() -> None:
    said = ['{"outcome": "commit"}', '{"outcome": "abort"}', '{"outcome": "unknown"}', "500"]
    with endpoint([*said, '{"outcome": "perhaps"}', "[]"]) as (url, asked):
        resolver = HttpResolver(url)
        found = [await resolver.resolve(KEY) for _ in range(3)]
        assert found == [DecidedOutcome.COMMITTED, DecidedOutcome.ABORTED, None]
        with pytest.raises(OSError, match="500"):
            await resolver.resolve(KEY)
        for _ in range(2):
            with pytest.raises(ValueError, match="wanted is"):
                await resolver.resolve(KEY)
    assert asked[0] == {
        "transactional_id": [KEY.transactional_id],
        "producer_id": ["7"],
        "producer_epoch": ["3"],
    }


async def test_database_resolver_asked_repeatedly_returns_the_same_outcome(tmp_path: Path) -> None:
    """A second resolver of the same database also gets this outcome."""
    ledger = sqlite_ledger(tmp_path / "ledger")
    first, second = DatabaseResolver(ledger.connect), DatabaseResolver(ledger.connect)
    with pytest.raises(Exception, match="no such table"):
        await first.resolve(KEY)
    with pytest.raises(Exception, match=r"not decided in time|reach|refused"):
        BlockingDualWriter("127.0.0.1:1", "billing", ledger.connect, max_block_ms=200).start()
    with pytest.raises(InvalidRequest, match="decides in another database"):
        await first.resolve(KEY)
    (session,) = ledger.rows(
        "SELECT transactional_id FROM oncelog_decisions WHERE outcome='session'"
    )
    key = TransactionKey(session, 7, 3)
    assert await first.resolve(key) is DecidedOutcome.ABORTED
    assert await second.resolve(key) is DecidedOutcome.ABORTED
    for resolver in (first, second):
        await resolver.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [("mysql://host", "is no resolver"), ("sqlite://file", "three slashes"), ("x", "no resolver")],
)
def test_resolver_of_a_malformed_address_is_refused(url: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        resolver_of(url)


def test_resolver_of_a_mistyped_file_name_creates_no_file(tmp_path: Path) -> None:
    resolver = resolver_of(f"sqlite://{tmp_path}/missing")
    with pytest.raises(Exception, match="unable to open"):
        asyncio.run(resolver.resolve(KEY))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.xdist_group("dual_write")
def test_check_back_asks_the_resolver_again_until_the_outcome_is_known(
    cluster: Cluster, topic: str, server: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    where = ["--data", str(cluster.data)]
    with BlockingDualWriter(cluster.bootstrap, topic, ledger.connect) as writer:
        with pytest.raises(CheckedBackError, match="check-back"), writer.transaction() as work:
            work.send(topic, b"1").result(timeout_s=20)
            (name,) = asyncio.run(open_transactions(cluster.bootstrap))
            assert run(["txn", "explain", name, *where]) == 0
            assert run(["txn", "abort", name, *where]) == 1
            assert run(["txn", "abort", "--prefix", PREFIX, *where]) == 0
            out, err = capsys.readouterr()
            assert f"writer {topic}" in out and "txn check-back" in out and "kept" in out
            assert "was left alone" in err
            _insert_aborted(ledger, cluster, name)
            _ended_by_endpoint(cluster, topic, name)
        with writer.transaction() as work:
            work.execute(ledger.insert, (2, 5))
            work.send(topic, b"2")
    assert_equal(cluster.bootstrap, topic, ledger)


def _ended_by_endpoint(cluster: Cluster, topic: str, name: str) -> None:
    """Answer unknown, then 500, then abort, and assert that only the abort ends the transaction."""

    async def sweeps(url: str) -> None:
        async with Admin(cluster.bootstrap) as admin:
            young = CheckBack(admin.view, HttpResolver(url), older_than_ms=600_000)
            assert await young.sweep() == []
            check_back = CheckBack(admin.view, HttpResolver(url), older_than_ms=0, writer=topic)
            (found,) = await check_back.sweep()
            assert found.outcome is None and "not known yet" in found.in_words()
            assert await check_back.sweep() == [], "it is asked again after a while"
            async with asyncio.timeout(20):
                while not (again := await check_back.sweep()):
                    await asyncio.sleep(0.05)
            assert again[0].outcome is None and "500" in again[0].reason
            async with asyncio.timeout(20):
                while not (again := await check_back.sweep()):
                    await asyncio.sleep(0.05)
            assert again[0].outcome is DecidedOutcome.ABORTED and again[0].is_ours
            assert again[0].key.transactional_id == name

    with endpoint(['{"outcome": "unknown"}', "500", '{"outcome": "abort"}']) as (url, _):
        asyncio.run(sweeps(url))


def _insert_aborted(ledger: Ledger, cluster: Cluster, name: str) -> None:
    """Insert the outcome `aborted` into the decision table.

    An endpoint must do this in its database before it answers `abort`.
    """

    async def insert() -> None:
        async with Admin(cluster.bootstrap) as admin:
            known = await admin.transactions.describe(name)
        key = TransactionKey(name, known.producer_id, known.producer_epoch)
        resolver = DatabaseResolver(ledger.connect)
        assert await resolver.resolve(key) is DecidedOutcome.ABORTED
        await resolver.close()

    asyncio.run(insert())


@pytest.mark.cluster
@pytest.mark.xdist_group("dual_write")
def test_check_back_command_with_once_reports_that_it_found_no_transaction(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ledger"
    sqlite_ledger(file).create()
    where = ["--resolver", f"sqlite://{file}", "--once", "--data", str(cluster.data)]
    assert run(["txn", "check-back", *where, "--older-than", "600"]) == 0
    assert "no transaction of a dual write" in "".join(capsys.readouterr())
    assert run(["txn", "check-back", *where, "--older-than", "600", "--format", "json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == []
    assert run(["txn", "check-back", "--resolver", "nowhere", "--data", str(cluster.data)]) == 2
    assert "is no resolver" in capsys.readouterr().err
