"""Test that Kafka's dump tool reads all files of nodes that rolled, were killed and recovered."""

import re
import threading
import time
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .kafka_peer import run_tool
from .readers import new_topic

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
TOPIC, COMPACTED = "dumped", "dumped-compacted"
CONFIGS = {
    "segment.bytes": "1048576",
    "segment.ms": "700",
    "index.interval.bytes": "512",
    "segment.index.bytes": "65536",
}
COMPLAINT = re.compile(
    r"[Mm]ismatch|Found timestamp|isvalid: false|Exception|WARN|ERROR|invalid bytes|"
    r"non-consecutive|out of order|Could not"
)


def _create(cluster: Cluster) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    new_topic(cluster, TOPIC, 2, **CONFIGS)
    new_topic(cluster, COMPACTED, 1, **CONFIGS, **compacted)


def _write(bootstrap: str, stop: threading.Event, codec: str, failed: list[str]) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "log_level": 0,
        }
    )

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    number = 0
    while not stop.is_set():
        for _ in range(10):
            value = f"{codec} {number} " + "x" * (number % 1000)
            key = f"{codec} {number % 50}"
            producer.produce(TOPIC, value, key, partition=number % 2, on_delivery=delivered)
            producer.produce(COMPACTED, value, key, partition=0, on_delivery=delivered)
            number += 1
        producer.poll(0)
        time.sleep(0.1)  # the tool must not have much to read again
    assert producer.flush(60) == 0, "records were left"


def _kill_in_turn(cluster: Cluster) -> None:
    for node in cluster.node_ids:
        time.sleep(0.7)
        cluster.kill(node)
        time.sleep(0.5)
        cluster.start_all([node])
    time.sleep(0.5)
    for node in cluster.node_ids:
        cluster.kill(node)
    cluster.start_all(cluster.node_ids)
    time.sleep(0.7)


@pytest.mark.in_turn
def test_kafka_dump_tool_reads_our_segments_without_an_error(tmp_path: Path) -> None:
    failed: list[str] = []
    stop = threading.Event()
    with Cluster(nodes=3, data=tmp_path / "cluster") as cluster:
        _create(cluster)
        writers = [
            threading.Thread(target=_write, args=(cluster.bootstrap, stop, codec, failed))
            for codec in ("none", "gzip", "lz4", "zstd", "snappy")
        ]
        for writer in writers:
            writer.start()
        try:
            _kill_in_turn(cluster)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        for topic in (TOPIC, COMPACTED):
            cluster.wait_for_isr(topic, 3)
    assert not failed, f"{len(failed)} records were not delivered: {failed[:3]}"
    _dump([tmp_path / "cluster" / f"node-{node}" for node in cluster.node_ids])


def _dump(nodes: list[Path]) -> None:
    folder, names = nodes[0].parent, list[str]()
    for node in nodes:
        files = {
            suffix: sorted(node.glob(f"{TOPIC}*/*{suffix}"))
            for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        }
        assert len(files[".log"]) > 6, f"hardly a segment was rolled: {files['.log']}"
        assert files[".snapshot"] and files[".index"] and files[".timeindex"]
        names += [str(file.relative_to(folder)) for group in files.values() for file in group]
    arguments = ("--deep-iteration", "--files", ",".join(names))
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", *arguments, folder=folder)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    complaint = COMPLAINT.search(text)
    assert not complaint, text[max(0, complaint.start() - 300) : complaint.end() + 300]
    assert text.count("Dumping ") == len(names)
    assert text.count("| offset: ") > 300 * len(nodes), "hardly a record was read"


def test_kafka_dump_tool_decodes_our_committed_offsets(tmp_path):
    """The tool reads keys and values of __consumer_offsets only in Kafka's format."""
    from confluent_kafka import Consumer, TopicPartition

    with Cluster(nodes=1, data=tmp_path / "cluster") as cluster:
        new_topic(cluster, "t", 2)
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "dumped group",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe(["t"])
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "the member gets no partition")
        offsets = [TopicPartition("t", partition, 40 + partition) for partition in (0, 1)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        cluster.ask(lambda admin: admin.groups.delete_offsets("dumped group", [("t", 1)]))
    logs = sorted(tmp_path.glob("cluster/node-1/__consumer_offsets-*/*.log"))
    written = [log for log in logs if log.stat().st_size]
    assert len(written) == 1
    done = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", str(written[0])),
    )
    assert done.returncode == 0 and not COMPLAINT.search(done.stdout), done.stdout + done.stderr
    printed = done.stdout
    key = 'key: {"type":"1","data":{"group":"dumped group","topic":"t","partition":%d}} payload: '
    for partition in (0, 1):
        value = f'"offset":{40 + partition},"leaderEpoch":-1,"metadata":"","commitTimestamp":'
        assert f'{key % partition}{{"version":"4","data":{{{value}' in printed
    assert f"{key % 1}<DELETE>" in printed
    assert '"protocolType":"consumer"' in printed and '"subscription":{"topics":["t"]' in printed
