"""Test a leader and a follower with a full disk, without an error for the producer.

The test of the leader limits the file size of the running process from outside (prlimit). Every
write beyond the limit fails as on a full disk. The limit may fall in the middle of a batch. The
test of the follower injects ENOSPC.
"""

import errno
import resource
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.faulty_cluster import FaultyCluster
from oncelog.deploy.inspect.node_troubles import disk_trouble

from ..waiting import until

pytestmark = pytest.mark.cluster
TOPIC = "full"
LIMIT_BYTES = 12 * 1024 * 1024  # above a segment of the Raft journal, which must go on
RECORDS, RECORD_BYTES = 2500, 10_000


@pytest.mark.in_turn
def test_leader_with_a_full_disk_is_replaced_and_no_acknowledged_record_is_lost(
    tmp_path: Path,
) -> None:
    with Cluster(nodes=3, data=tmp_path / "cluster") as cluster:
        quiet = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions=1, replication_factor=3))
        cluster.wait_for_isr(TOPIC, 3)
        leader = cluster.leader(TOPIC, 0)
        process = cluster.node(leader).find()
        assert process is not None
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

        failed: list[KafkaError] = []

        def note_failure(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({**quiet, "enable.idempotence": True, "batch.size": 200_000})
        for number in range(RECORDS):
            value = f"{number}:".encode().ljust(RECORD_BYTES, b"x")
            while True:
                try:
                    producer.produce(TOPIC, value, on_delivery=note_failure)
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failed
        assert cluster.leader(TOPIC, 0) != leader
        assert process.is_running(), "the broker lives on without this partition"

        seen: list[int] = []
        consumer = Consumer({**quiet, "group.id": "judge", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 30
        while len(seen) < RECORDS and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None
                seen.append(int((message.value() or b"").partition(b":")[0]))
        consumer.close()
        assert seen == list(range(RECORDS))

        cluster.kill(leader)
        cluster.start(leader)  # the next incarnation recovers the log and catches up
        cluster.wait_for_isr(TOPIC, 3)


@pytest.mark.in_turn
def test_follower_with_a_freed_disk_rejoins_the_isr_without_a_restart(tmp_path: Path) -> None:
    with FaultyCluster(nodes=3, data=tmp_path / "cluster") as cluster:
        quiet = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions=1, replication_factor=3))
        cluster.wait_for_isr(TOPIC, 3)
        leader = cluster.leader(TOPIC, 0)
        follower = next(node for node in cluster.node_ids if node != leader)
        process = cluster.node(follower).find()
        assert process is not None
        cluster.ask_faults(
            follower, {"op": "disk", "point": "log.append.before-write", "errno": errno.ENOSPC}
        )
        failed: list[KafkaError] = []

        def note_failure(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({**quiet, "acks": "all"})
        for number in range(100):
            producer.produce(TOPIC, str(number), on_delivery=note_failure)
        assert producer.flush(60) == 0
        assert not failed
        cluster.wait_for_isr(TOPIC, 2)
        assert disk_trouble(cluster, follower) == "the disk is full (No space left on device)"
        cluster.ask_faults(follower, {"op": "heal"})
        cluster.wait_for_isr(TOPIC, 3)
        assert cluster.node(follower).find() == process
        assert cluster.leader(TOPIC, 0) == leader
        until(lambda: not disk_trouble(cluster, follower))
        log = cluster.node(follower).log.read_text()
        assert log.count(" is full ") == log.count(" accepts writes again") == 1
