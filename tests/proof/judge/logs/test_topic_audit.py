"""Test the audit of a topic through the protocol, on made-up batches and on real nodes."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from oncelog.cli import main
from oncelog.client.producer import Producer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.judge.logs.partition_audit import AUDIT_ANOMALIES, PartitionAudit
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

from ..transactions import write


def data(offset: int, sequence: int, *, producer: int = 7, epoch: int = 0, open_: bool = True,
         leader_epoch: int = 0) -> bytes:  # fmt: skip
    return encode_batch(
        [Record(offset, 1_000, None, b"v")], producer_id=producer, producer_epoch=epoch,
        base_sequence=sequence, transactional=open_, leader_epoch=leader_epoch,
    )  # fmt: skip


def marker(offset: int, kind: ControlType, *, producer: int = 7, epoch: int = 1,
           coordinator: int = 0) -> bytes:  # fmt: skip
    return encode_marker(
        kind, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator,
        timestamp_ms=1_000, base_offset=offset, leader_epoch=0,
    )  # fmt: skip


COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
SOUND = (
    data(0, 0), data(1, 1), marker(2, COMMIT), data(3, 0, epoch=1), marker(4, ABORT, epoch=2),
    data(5, 0, producer=8, open_=False),
)  # fmt: skip


def audited(*batches: bytes, hidden: tuple[int, ...] = (3,), until: int = 99, start: int = 0):
    audit = PartitionAudit("orders/0", start)
    for one in batches:
        header = decode_header(one)
        if header.base_offset < until:
            audit.committed_batch(header, is_aborted=header.base_offset in hidden)
    for one in batches:
        audit.batch(decode_header(one), one)
    return audit, {finding.name for finding in audit.findings()}


def test_topic_audit_of_an_undamaged_log_reports_nothing() -> None:
    audit, found = audited(*SOUND)
    assert found == set()
    assert (audit.batches, audit.records) == (6, 4)
    assert audit.transactions == {"committed": 1, "aborted": 1}
    assert audit.open_transactions() == []


def test_topic_audit_of_an_invisible_open_transaction_lists_and_accepts_the_transaction() -> None:
    audit, found = audited(*SOUND, data(6, 0, epoch=2), until=6)
    assert found == set()
    (one,) = audit.open_transactions()
    assert (one.producer_id, one.producer_epoch, one.first_offset) == (7, 2, 6)
    assert audited(*SOUND, data(6, 0, epoch=2))[1] == {"open-visible"}


BROKEN_RULES = [
    (SOUND, (), "aborted-visible"),
    (SOUND, (0, 3), "committed-hidden"),
    ((data(0, 0), data(1, 2), marker(2, COMMIT)), (), "sequence-gap"),
    ((data(0, 0), data(1, 0), marker(2, COMMIT)), (), "sequence-repeated"),
    ((data(0, 3), marker(1, COMMIT)), (), "sequence-gap"),
    ((data(1, 0), data(0, 1), marker(2, COMMIT)), (), "offset-disorder"),
    ((data(0, 0), marker(1, COMMIT), data(2, 1)), (), "zombie-append"),
    ((data(0, 0), data(1, 1, open_=False), marker(2, COMMIT)), (), "plain-in-transaction"),
    (
        (data(0, 0, open_=False, leader_epoch=3), data(1, 1, open_=False, leader_epoch=2)),
        (),
        "leader-epoch-fell",
    ),
    (
        (data(0, 0), marker(1, COMMIT, coordinator=5), data(2, 0, epoch=1),
         marker(3, COMMIT, epoch=2, coordinator=4)),
        (),
        "coordinator-epoch-fell",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("batches", "hidden", "expected"), BROKEN_RULES)
def test_topic_audit_names_each_broken_rule(
    batches: tuple[bytes, ...], hidden: tuple[int, ...], expected: str
) -> None:
    assert audited(*batches, hidden=hidden)[1] == {expected}


def test_topic_audit_anomaly_of_each_kind_is_tested() -> None:
    tested = {"open-visible"} | {expected for _, _, expected in BROKEN_RULES}
    assert tested == {anomaly.name for anomaly in AUDIT_ANOMALIES}


def test_topic_audit_after_deleted_records_accepts_any_first_sequence() -> None:
    cut = (data(9, 41), marker(10, COMMIT))
    assert audited(*cut, hidden=(), start=9)[1] == set()
    assert audited(*cut, hidden=())[1] == {"sequence-gap"}


def test_topic_audit_after_deleted_records_accepts_a_marker_without_data() -> None:
    """Only the marker of a V1 transaction remains, and its producer continues."""
    cut = (marker(9, COMMIT, epoch=0), data(10, 17, open_=False))
    assert audited(*cut, hidden=(), start=9)[1] == set()
    higher = (marker(9, COMMIT, epoch=0), data(10, 17, epoch=1, open_=False))
    assert audited(*higher, hidden=(), start=9)[1] == {"sequence-gap"}


def test_topic_audit_accepts_sequences_that_wrap_after_the_largest() -> None:
    last = data(1, 2**31 - 1, open_=False)
    first = data(0, 2**31 - 2, open_=False)
    batches = (first, last, data(2, 0, open_=False))
    assert audited(*batches, hidden=(), start=1)[1] == set()


def test_topic_audit_accepts_markers_that_end_no_transaction() -> None:
    again = marker(3, COMMIT)
    assert audited(data(0, 0), data(1, 1), marker(2, COMMIT), again, hidden=())[1] == set()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=2))
        yield running


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_topic_audit_of_a_real_topic_counts_its_transactions(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(write(cluster.bootstrap, "orders", plain_records=50))
    where = ["--bootstrap", cluster.bootstrap]
    assert main.run(["check", "orders", *where]) == 0
    out = capsys.readouterr().out
    assert "no promise was broken" in out
    assert main.run(["check", "orders", *where, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["is_clean"]
    for partition in printed["partitions"]:
        assert (partition["committed"], partition["aborted"], partition["open"]) == (4, 2, [])
    assert sum(partition["records"] for partition in printed["partitions"]) == 12 + 50


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_topic_audit_of_a_real_topic_lists_its_open_transaction(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async def audit_while_open() -> None:
        async with Producer(cluster.bootstrap, transactional_id="slow") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send("orders", b"open", partition=0)
            await producer.flush()
            code = await asyncio.to_thread(
                main.run, ["check", "orders", "--bootstrap", cluster.bootstrap]
            )
            assert code == 0
            await producer.abort_transaction()

    asyncio.run(audit_while_open())
    assert "1 open" in capsys.readouterr().out
