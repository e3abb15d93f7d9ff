"""Test blocks of a dual write with Django models, over SQLite and PostgreSQL."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest

from oncelog.client import BlockingDualWriter, BlockingOutboxWriter, BlockingWriterPool
from oncelog.client.adapters import django as adapter
from oncelog.client.dual_write.stop_words import BlockNotWhole, UnsafeDatabase

from ...docs.blocks import block
from ..dual_write.ledger import Ledger, assert_equal

conf: Any = pytest.importorskip("django.conf", reason="Django is missing (extra: test)")
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
if not conf.settings.configured:
    conf.settings.configure()
django: Any = pytest.importorskip("django")
django.setup()
db: Any = pytest.importorskip("django.db")


class Transfer(db.models.Model):
    number = db.models.IntegerField(primary_key=True)
    amount = db.models.IntegerField(default=5)

    class Meta:
        app_label = "bank"
        db_table = "transfers"


@pytest.fixture(autouse=True)
def configured(database: str) -> Iterator[None]:
    """Use the database of the transfers as Django's default database."""
    at: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": database}
    if database.startswith("postgresql:"):
        url = urlsplit(database)
        at = {"ENGINE": "django.db.backends.postgresql", "NAME": url.path[1:]}
        at |= {"USER": url.username, "HOST": url.hostname, "PORT": url.port}
    db.connections.settings = db.connections.configure_settings({"default": at})
    yield
    for each in db.connections.all(initialized_only=True):
        each.close()
        del db.connections[each.alias]


def made(number: int) -> None:
    Transfer.objects.create(number=number)


def test_django_block_commits_model_rows_and_events_together(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    called: list[int] = []
    with BlockingDualWriter(bootstrap, topic, adapter.connect) as writer:
        with adapter.transaction(writer) as work:
            made(1)
            db.transaction.on_commit(lambda: called.append(Transfer.objects.count()))
            with pytest.raises(ZeroDivisionError), db.transaction.atomic():
                made(7)
                db.transaction.on_commit(lambda: called.append(7))
                raise ZeroDivisionError
            with pytest.raises(db.IntegrityError), db.transaction.atomic():
                made(1)
            assert Transfer.objects.count() == 1
            assert called == []
            work.send(topic, b"1")
        assert called == [1]
        with pytest.raises(ZeroDivisionError), adapter.transaction(writer) as work:
            made(9)
            db.transaction.on_commit(lambda: called.append(9))
            work.send(topic, b"9")
            raise ZeroDivisionError
        with pytest.raises(db.IntegrityError), adapter.transaction(writer) as work:
            work.send(topic, b"1")
            made(1)
        with adapter.transaction(writer) as work:
            made(2)
            work.send(topic, b"2")
    assert called == [1]
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [1, 2]


def test_django_on_commit_hook_that_raises_leaves_its_block_committed(
    bootstrap: str, ledger: Ledger, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    def fails() -> None:
        raise ZeroDivisionError

    with BlockingDualWriter(bootstrap, topic, adapter.connect) as writer:
        with adapter.transaction(writer) as work:
            made(1)
            for hook in (fails, partial(fails), lambda: called.append(1)):
                db.transaction.on_commit(hook)
            work.send(topic, b"1")
        assert called == [1] and caplog.text.count("failed after its block was committed") == 2
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [1]


def test_django_block_that_ends_its_own_transaction_commits_neither_rows_nor_events(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, adapter.connect) as writer:
        undone = db.transaction.TransactionManagementError
        with pytest.raises(undone, match="marked"), adapter.transaction(writer) as work:
            made(1)
            work.send(topic, b"1")
            db.transaction.set_rollback(True)
        with pytest.raises(undone), adapter.transaction(writer) as work:
            made(2)
            work.send(topic, b"2")
            db.transaction.commit()
        with pytest.raises(BlockNotWhole), adapter.transaction(writer) as work:
            made(3)
            work.send(topic, b"3")
            work.connection.rollback()
        with pytest.raises(BlockNotWhole, match="STANDS"), adapter.transaction(writer) as work:
            work.send(topic, b"3")
            db.connection.cursor().execute("COMMIT")
        with pytest.raises(db.Error, match=r"(?i)typo"), adapter.transaction(writer) as work:
            work.send(topic, b"3")
            db.transaction.savepoint_rollback("typo")
        with adapter.transaction(writer) as work:
            made(4)
            work.send(topic, b"4")
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [4]


def test_django_block_within_another_transaction_is_refused(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, adapter.connect) as writer:
        with (
            db.transaction.atomic(),
            pytest.raises(UnsafeDatabase, match="ATOMIC_REQUESTS"),
            adapter.transaction(writer),
        ):
            pass
        with (
            adapter.transaction(writer),
            pytest.raises(RuntimeError, match="durable"),
            db.transaction.atomic(durable=True),
        ):
            pass


def test_django_pool_and_outbox_support_the_same_blocks_as_the_dual_writer(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingWriterPool(bootstrap, topic, 2, adapter.connect) as pool:
        for number in (1, 2, 3):
            with adapter.transaction(pool) as work:
                made(number)
                work.send(topic, b"%d" % number)
    assert_equal(bootstrap, topic, ledger)
    with (
        BlockingOutboxWriter(topic, adapter.connect) as writer,
        adapter.transaction(writer) as work,
    ):
        made(4)
        work.send(topic, b"4")
    assert ledger.rows() == [1, 2, 3, 4]
    assert ledger.rows("SELECT outbox FROM oncelog_outbox").count(topic) == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_django_program_in_the_docs_runs_as_shown(bootstrap: str, database: str) -> None:
    program = block("docs/databases.md", "settings.configure(").text
    ran = subprocess.run(
        [sys.executable, "-c", program, bootstrap, database],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["10 counts", "0 does not", "20 counts", "[10, 20]"]
