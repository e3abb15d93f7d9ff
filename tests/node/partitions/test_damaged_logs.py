"""Test that a leader with a damaged log steps down, and its replica is copied again."""

from pathlib import Path

import pytest

from oncelog.node.broker import Broker
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.wire.errors import CorruptMessage, KafkaError, KafkaStorageError

from ...awaiting import until
from ...log_batches import batches_in
from ..three_brokers import NODES, ThreeBrokers, producer_at, three_brokers

BATCHES = 12


def replica(broker: Broker) -> HostedPartition:
    return broker.replicas.partition("t", 0)


def isr(broker: Broker) -> tuple[int, ...]:
    record = broker.state.partition("t", 0)
    return () if record is None else record.isr


def whole_isr(cluster: ThreeBrokers) -> bool:
    """Return whether all replicas are in sync and have the same log end offset."""
    hosted = [broker.replicas.get("t", 0) for broker in cluster.brokers]
    return (
        set(isr(cluster.brokers[0])) == set(NODES)
        and all(each is not None and not each.log.is_failed for each in hosted)
        and len({each.log.log_end_offset for each in hosted if each is not None}) == 1
    )


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


async def produced(broker: Broker, *, closed: bool = True) -> None:
    async with producer_at(broker) as producer:
        await producer.produce(BATCHES)
    if closed:
        replica(broker).log.roll(1)


def read_all(hosted: HostedPartition) -> list[bytes]:
    hosted.log.segments.drop_cached_reads()
    return batches_in(hosted.log)


@pytest.mark.in_turn
@pytest.mark.parametrize("position", [9, 40, 300])
async def test_leader_that_finds_a_damaged_log_steps_down_and_is_copied_again(
    tmp_path: Path, position: int
) -> None:
    async with three_brokers(tmp_path) as cluster:
        leader = await cluster.create_topic()
        await produced(leader)
        await until(lambda: whole_isr(cluster))
        written = read_all(replica(leader))
        path = replica(leader).log.segments.first.file.path
        flip(path, position)
        with pytest.raises(KafkaStorageError):
            read_all(replica(leader))
        await until(lambda: cluster.leader() not in (None, leader))
        assert "t-0" in leader._logs.metrics()["damaged"]
        await until(lambda: whole_isr(cluster))
        assert [read_all(replica(broker)) for broker in cluster.brokers] == [written] * 3
        await until(lambda: not leader._logs.metrics()["damaged"])
        await leader._maintenance._purge()
        assert not list(path.parent.parent.glob("*-damaged"))


async def test_leader_with_a_damaged_index_rebuilds_the_index_from_the_log(tmp_path: Path) -> None:
    async with three_brokers(tmp_path) as cluster:
        leader = await cluster.create_topic()
        await produced(leader)
        await until(lambda: whole_isr(cluster))
        log = replica(leader).log
        written, index = read_all(replica(leader)), log.segments.first.time_index
        content = index.path.read_bytes()
        flip(index.path, len(content) - 1)
        with pytest.raises(KafkaError):
            log.batch_not_older((BATCHES - 1) * 1_000, 0)
        await until(lambda: log.is_failed and whole_isr(cluster))
        assert index.path.read_bytes() == content
        assert not list(index.path.parent.parent.glob("*-damaged"))
        assert read_all(replica(leader)) == written


async def test_leader_alone_in_the_isr_with_a_damaged_log_serves_its_intact_records(
    tmp_path: Path,
) -> None:
    async with three_brokers(tmp_path) as cluster:
        leader = await cluster.create_topic()
        await produced(leader)
        await until(lambda: whole_isr(cluster))
        written = read_all(replica(leader))
        others = [broker for broker in cluster.brokers if broker is not leader]
        for broker in others:
            log = replica(broker).log
            log.local.retire("its disk was taken away")
            broker.replicas.fail(replica(broker))
        await until(lambda: isr(leader) == (leader.config.node_id,))
        log = replica(leader).log
        flip(log.segments.first.file.path, len(written[0]) + 40)
        log.segments.drop_cached_reads()
        with pytest.raises(CorruptMessage):
            log.read(1, 1 << 20, upper_offset=log.log_end_offset)
        assert cluster.leader() is leader and not log.is_failed
        assert bytes(log.read(0, 1, upper_offset=log.log_end_offset).data) == written[0]
        assert bytes(log.read(2, 1, upper_offset=log.log_end_offset).data) == written[2]
        assert "checksum" in leader._logs.metrics()["damaged"]["t-0"]
