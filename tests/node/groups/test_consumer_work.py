"""Test long jobs of consumer groups with changes meanwhile, and results that cannot be written."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.coordinator.groups.consumer import heartbeats
from oncelog.coordinator.groups.consumer.consumer_group import ConsumerGroup
from oncelog.coordinator.groups.turn import GroupAppend, LogRecord
from oncelog.coordinator.metadata.cluster_model import Changes
from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.groups import consumer_work
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.errors import ErrorCode

from ...awaiting import settle, turns_until
from ..coordinating_broker import CoordinatingBroker
from .test_consumer_groups import BEAT, T, going_on, joining

PARTITIONS = 600  # too many for one heartbeat


class Broker(CoordinatingBroker):
    """A coordinator with one step in each slice of its work."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, topic=True, group_consumer_assignment_interval_ms="0")
        ticks = iter(range(1 << 30))
        self.replicas.work = SlicedWork(lambda: next(ticks) * 0.003)
        topic = NewTopic("t", T, partition_count=PARTITIONS, replication_factor=1)
        assert not self.fake.controller.apply(CreateTopics((topic,))).items[0].error

    @property
    def group(self) -> ConsumerGroup:
        return self.shard.table.consumers.find("g")


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path)
    await broker.serve()
    yield broker
    broker.groups.stop()


async def test_target_assignment_ready_after_a_member_change_covers_the_present_members(
    broker: Broker,
) -> None:
    """During the job a static member is replaced by another member in the same epoch."""
    await broker.ask(BEAT, 1, joining("a", instance_id="i"))
    await turns_until(lambda: broker.group.target.epoch == broker.group.epoch)
    await broker.ask(BEAT, 1, going_on(-2, "a", instance_id="i"))
    pending = broker.request(BEAT, 1, joining("b", instance_id="j"))
    again = broker.request(BEAT, 1, joining("c", instance_id="i"))
    await pending.value()
    epoch = (await again.value()).member_epoch
    for _ in range(50):
        await settle()
    await broker.ask(BEAT, 1, going_on(epoch, "c", instance_id="i"))
    await turns_until(lambda: broker.group.target.epoch == broker.group.epoch)
    assert set(broker.group.targets) == {"b", "c"}
    targets = [target[T] for target in broker.group.targets.values()]
    assert sorted(index for each in targets for index in each) == list(range(PARTITIONS))


async def test_subscribed_pattern_is_matched_again_after_a_failed_write(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_work, "TRY_AGAIN_MS", 0)
    monkeypatch.setattr(heartbeats, "PATTERNS_REFRESH_MS_MIN", -1)  # else 10 s
    await broker.ask(BEAT, 1, joining(subscribed_topic_names=None, subscribed_topic_regex="n.*"))
    await turns_until(lambda: "n.*" in broker.group.patterns)
    creations = broker.group.resolved_creations
    command = CreateTopics((NewTopic("new", b"n" * 16, partition_count=1, replication_factor=1),))
    broker.fake.controller.apply(command)
    broker.groups.topics.note(Changes(topics_created={"new"}))
    log = broker.partition().log
    with monkeypatch.context() as patch:
        patch.setattr(log, "config", replace(log.config, max_message_bytes=10))
        await broker.ask(BEAT, 1, going_on(1))
        await settle()
    assert broker.group.resolved_creations != creations + 1
    await broker.ask(BEAT, 1, going_on(1))
    await turns_until(lambda: broker.group.patterns["n.*"].topics == ("new",))


async def test_group_records_beyond_one_batch_are_not_encoded(broker: Broker) -> None:
    made, errors = list[int](), list[int]()

    def records() -> Iterator[LogRecord]:
        for number in range(10_000):
            made.append(number)
            yield b"key", bytes(100_000)

    turn = broker.shard.turn()
    turn.appends.append(
        GroupAppend("g", records, lambda error, later: errors.append(error), lambda later: None)
    )
    broker.groups.execute(broker.shard, turn)
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert len(made) <= 1 + broker.partition().log.config.max_message_bytes // 100_000
