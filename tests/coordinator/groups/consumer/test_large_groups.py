"""Test consumer groups with assignments that take longer than a heartbeat."""

from dataclasses import replace

import pytest

from oncelog.coordinator.groups import consumer_groups
from oncelog.coordinator.groups.consumer.subscriptions import metadata_hash
from oncelog.wire.errors import ErrorCode

from .consumer_driver import ConsumerLog, ListedTopic, ObedientClient, settle, topic_id


@pytest.mark.parametrize("is_loaded_anew", [False, True])
def test_first_member_of_a_large_group_gets_an_epoch_above_zero(
    is_loaded_anew: bool,
) -> None:
    """The next heartbeat has only a few fields. With epoch 0 it would be a join, and be refused."""
    log = ConsumerLog()
    log.set_topic("t", 1_000)
    client = ObedientClient(log, "a")
    assert client.beat().member_epoch == 1
    if is_loaded_anew:
        log.load_anew()
    for _ in range(3):
        log.pass_time(1_000)
        client.obey(log.ask(client.short_request()).answer)
    assert len(client.owned) == 1_000 and client.epochs == sorted(client.epochs)
    assert log.group.state_name == "Stable"


@pytest.mark.parametrize(
    "more",
    [{"rack_id": "r" * 2_000}, {"topic_pattern": "p" * 2_000}, {"topic_names": ("n" * 2_000,)}],
)
def test_consumer_group_metadata_added_by_later_heartbeats_is_bounded(
    more: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_groups, "METADATA_BYTES_MAX", 3_000)
    log = ConsumerLog()
    client = ObedientClient(log, "a")
    client.beat()
    refused = log.ask(client.short_request(**more))
    assert refused.answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert client.beat().error == 0


def test_consumer_group_memory_of_member_ids_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "METADATA_BYTES_MAX", 3_000)
    log = ConsumerLog()
    refused = ObedientClient(log, "m" * 2_000).beat()
    assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_static_member_rejoins_a_group_with_full_metadata_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ConsumerLog()
    log.set_topic("t", 2)
    client = ObedientClient(log, "a", instance="i")
    client.beat()
    client.leave(-2)
    monkeypatch.setattr(consumer_groups, "METADATA_BYTES_MAX", log.table.held_metadata.size_bytes)
    settle(log, [again := ObedientClient(log, "b", instance="i")], 1)
    assert again.owned and list(log.group.members) == ["b"]


def test_consumer_group_metadata_hash_changes_with_each_topic_change() -> None:
    known = {name: ListedTopic(topic_id(name), range(2)) for name in ("a", "b", "c")}
    hashes = [
        metadata_hash(names, known)
        for names in ((), ("x",), ("a",), ("b",), ("a", "b"), ("a", "b", "c"))
    ]
    grown = known | {"a": replace(known["a"], partitions=range(3))}
    made_again = known | {"a": replace(known["a"], topic_id=topic_id("z"))}
    hashes += [metadata_hash(("a", "b"), topics) for topics in (grown, made_again)]
    assert hashes[:2] == [0, 0] and len(set(hashes[1:])) == len(hashes) - 1
    assert metadata_hash(("b", "a", "b", "x"), known) == metadata_hash(("a", "b"), known)
    assert all(-(1 << 63) <= each < 1 << 63 for each in hashes)
