"""Test that the scan accepts files of real nodes, and names a falsified file."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.cli import main
from oncelog.client.producer import Producer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.logs.derived_files import check_partition
from oncelog.proof.judge.logs.scan import dump_logs, scan_topics
from oncelog.proof.judge.verdict import judge

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
TOPIC = "orders"


async def write(bootstrap: str) -> None:
    for number in range(8):
        async with Producer(bootstrap, transactional_id="writer") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in (0, 1):
                for _ in range(3):
                    await producer.send(TOPIC, b"%d" % number + b"x" * 40_000, partition=partition)
                await producer.flush()
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the directory of three cleanly stopped nodes, one of which was killed before."""
    data = tmp_path_factory.mktemp("cluster") / "data"
    with Cluster(3, data=data) as cluster:
        cluster.ask(
            lambda admin: admin.create_topic(
                TOPIC, partitions=2, replication_factor=3, configs={"segment.bytes": "1048576"}
            )
        )
        cluster.wait_for_isr(TOPIC, 3)
        asyncio.run(write(cluster.bootstrap))
        dead = cluster.kill(f"leader:{TOPIC}/0")
        cluster.start(dead)
        cluster.wait_for_isr(TOPIC, 3)
        asyncio.run(write(cluster.bootstrap))
        recorder = Recorder.in_memory()
        assert asyncio.run(scan_topics(cluster.bootstrap, [TOPIC], recorder, lambda r: r.offset))
        history = History.of(recorder)
        # half of two times 8 transactions committed, each with 3 records in each of 2 partitions
        assert history.count("scan") == 2 * 4 * 3 * 2
        assert judge(history, ["J6"]).is_clean
        leaders = history.column("ends", "leader")
        assert len(leaders) == 2
        assert (leaders > 0).all()
        saved = data.parent / "saved"
        for node in cluster.node_ids:
            cluster.stop(node)
        shutil.copytree(data, saved)
    yield saved


@pytest.mark.in_turn
def test_log_scan_of_undamaged_files_reports_nothing(
    stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["check", str(stopped)]) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "A4, W1, W2" in out
    assert "no promise was broken" in out


def test_log_scan_reads_every_node(stopped: Path) -> None:
    recorder = Recorder.in_memory()
    assert dump_logs(recorder, stopped) > 0
    history = History.of(recorder)
    names = history.column("batches", "partition")
    chosen = names == history.name_id(f"{TOPIC}/0")
    assert set(history.column("batches", "replica")[chosen].tolist()) == {1, 2, 3}
    assert set(history.column("batches", "marker")[chosen].tolist()) == {-1, 0, 1}


def changed(at: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".txnindex", lambda content: content[:-34]),
        (".txnindex", changed(12)),
        (".index", changed(3)),
        (".index", changed(6)),
        (".timeindex", changed(5)),
        (".snapshot", lambda content: content[:-1]),
        (".log", changed(70)),
        ("leader-epoch-checkpoint", lambda content: content.replace(b"0 0\n", b"7 0\n", 1)),
    ],
)
def test_log_scan_of_a_falsified_file_names_the_file(
    stopped: Path, tmp_path: Path, suffix: str, change: Callable[[bytes], bytes]
) -> None:
    source = stopped / "node-1" / f"{TOPIC}-0"
    assert list(check_partition(source)) == []
    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(source, copy)
    file = max((f for f in copy.iterdir() if f.name.endswith(suffix)),
               key=lambda f: f.stat().st_size)  # fmt: skip
    whole = file.read_bytes()
    assert change(whole) != whole
    file.write_bytes(change(whole))
    assert file.name in {name for name, _ in check_partition(copy)}


def test_log_scan_of_a_snapshot_with_another_state_names_the_snapshot(
    stopped: Path, tmp_path: Path
) -> None:
    from oncelog.storage.producers import snapshot

    copy = tmp_path / f"{TOPIC}-0"
    shutil.copytree(stopped / "node-1" / f"{TOPIC}-0", copy)
    file = max(copy.glob("*.snapshot"))
    entries = snapshot.decode(file.read_bytes())
    assert entries
    entries[0] = entries[0]._replace(producer_epoch=entries[0].producer_epoch + 1)
    file.write_bytes(snapshot.encode(entries))
    assert [name for name, _ in check_partition(copy)] == [file.name]


def test_log_scan_of_a_differing_replica_names_both_replicas(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    log = min((data / "node-2" / f"{TOPIC}-1").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[15] ^= 1  # the leader epoch of the first batch, which no checksum covers
    log.write_bytes(content)
    assert main.run(["check", str(data), "--format", "json", "--only", "W2"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["name"] == "replica-divergence"
    assert finding["cases"][0]["facts"]["replicas"] == [1, 2]
