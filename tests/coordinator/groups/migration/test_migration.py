"""Test the conversion of classic groups to consumer groups (upgrade) and back (downgrade)."""

import pytest

from oncelog.coordinator.groups.group_messages import LeavingMember
from oncelog.coordinator.groups.migration import downgrade, upgrade
from oncelog.coordinator.groups.records import GroupKey, decode_key
from oncelog.wire.errors import CoordinatorNotAvailable, ErrorCode

from ..consumer.consumer_driver import (
    GROUP,
    INTERVAL_MS,
    ConsumerLog,
    ObedientClient,
    topic_id,
)
from .mixed_members import (
    PARTITIONS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    ClassicClient,
    all_numbers,
    check_owners,
    kind,
    numbers,
    settle,
)

ALL = list(range(PARTITIONS))


@pytest.fixture
def log() -> ConsumerLog:
    log = ConsumerLog()
    log.set_topic(TOPIC, PARTITIONS)
    return log


def classic_group(
    log: ConsumerLog, count: int = 2, *, is_cooperative: bool = False
) -> list[ClassicClient]:
    clients = [
        ClassicClient(log, f"c{number}", is_cooperative=is_cooperative) for number in range(count)
    ]
    settle(log, clients)
    assert kind(log) == "classic/Stable"
    return clients


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_classic_group_joined_and_left_by_a_consumer_is_upgraded_and_downgraded(
    log: ConsumerLog, is_cooperative: bool
) -> None:
    first, second = classic_group(log, is_cooperative=is_cooperative)
    generation, joins = first.generation, first.joins
    consumer = ObedientClient(log, "n1")
    assert consumer.beat().error == 0
    clients = [first, second, consumer]
    settle(log, clients)
    assert kind(log) == "consumer/Stable"
    assert [len(numbers(client)) for client in clients] == [2, 2, 2]
    assert log.group.epoch == generation + 1
    assert first.joins <= joins + (2 if is_cooperative else 1)
    second.leave()
    settle(log, [first, consumer])
    assert kind(log) == "consumer/Stable"
    assert sorted(numbers(first) + numbers(consumer)) == ALL
    consumer.leave()
    assert kind(log) == "classic/PreparingRebalance"
    settle(log, [first])
    assert kind(log) == "classic/Stable"
    assert numbers(first) == ALL
    assert first.generation > generation


def test_group_upgrade_is_written_in_one_batch_with_its_heartbeat(log: ConsumerLog) -> None:
    classic_group(log)
    before, batches = len(log.committed), log.batches
    ObedientClient(log, "n1").beat()
    assert log.batches == batches + 1
    written = log.committed[before:]
    assert decode_key(written[0][0]) == GroupKey(GROUP) and written[0][1] is None


def test_group_downgrade_is_written_in_one_batch_with_all_tombstones(log: ConsumerLog) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    held = log.table.held_metadata.size_bytes
    before, batches = len(log.committed), log.batches
    consumer.leave()
    assert log.batches == batches + 1
    *tombstones, last = log.committed[before:]
    assert not any(value for _, value in tombstones)
    assert decode_key(last[0]) == GroupKey(GROUP) and last[1] is not None
    assert 0 < log.table.held_metadata.size_bytes < held


@pytest.mark.parametrize("bound", ["ELEMENTS_MAX", "METADATA_BYTES_MAX", "MEMBERS_MAX"])
def test_group_too_large_for_a_downgrade_batch_stays_a_consumer_group(
    log: ConsumerLog, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    monkeypatch.setattr(downgrade, bound, 1)
    consumer.leave()
    assert kind(log).startswith("consumer/")
    settle(log, clients)
    assert sorted(numbers(clients[0]) + numbers(clients[1])) == ALL


def test_last_consumer_of_a_group_too_large_for_a_downgrade_is_removed(
    log: ConsumerLog,
) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    turn, later = log.turn(), log.turn()
    log.table.consumers.heartbeat(consumer.request(member_epoch=-1), object(), turn)
    (whole,) = turn.appends
    assert not turn.notes, "nothing has become of it yet"
    whole.settled(ErrorCode.UNKNOWN_SERVER_ERROR, later)
    (smaller,) = later.appends
    assert not any(isinstance(decode_key(key), GroupKey) for key, _ in smaller.records())
    assert smaller.replay is not None
    smaller.replay(later)
    assert set(log.group.members) == {client.member_id for client in clients}


def test_leave_of_a_classic_member_after_an_upgrade_gets_a_retriable_error(
    log: ConsumerLog,
) -> None:
    (client,) = classic_group(log, 1)
    settle(log, [client, ObedientClient(log, "n1")])
    with pytest.raises(CoordinatorNotAvailable):
        log.table.leave(GROUP, [LeavingMember(member_id=client.member_id)], log.turn())


@pytest.mark.parametrize("kept", [0, 1])
def test_group_upgrade_interrupted_by_a_coordinator_death_is_atomic(
    log: ConsumerLog, kept: int
) -> None:
    clients = classic_group(log)
    log.holds = True
    consumer = ObedientClient(log, "n1")
    consumer.beat()
    log.load_anew(kept)
    log.holds = False
    assert kind(log).split("/")[0] == ("consumer" if kept else "classic")
    settle(log, [*clients, consumer])
    assert kind(log) == "consumer/Stable"
    assert all_numbers([*clients, consumer]) == ALL


@pytest.mark.parametrize("kept", [0, 1])
def test_group_downgrade_interrupted_by_a_coordinator_death_is_atomic(
    log: ConsumerLog, kept: int
) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    log.holds = True
    assert log.ask(consumer.request(member_epoch=-1)).is_waiting
    consumer.owned.clear()
    log.load_anew(kept)
    log.holds = False
    expected = "classic/PreparingRebalance" if kept else "consumer/Stable"
    assert kind(log) == expected
    if not kept:
        log.pass_time(SESSION_MS // 2)
        settle(log, clients)  # until the session of the member that left has expired
        settle(log, clients, rounds=45)
    settle(log, clients)
    assert kind(log) == "classic/Stable"
    assert sorted(numbers(clients[0]) + numbers(clients[1])) == ALL


def test_members_waiting_in_a_rebalance_are_answered_when_the_group_upgrade_is_written(
    log: ConsumerLog,
) -> None:
    first, second = classic_group(log)
    third = ClassicClient(log, "c3")
    third.step()
    assert third.waiting is not None and third.waiting.is_waiting
    log.holds = True
    consumer = ObedientClient(log, "n1")
    consumer.beat()
    assert third.waiting.answer.error == ErrorCode.REBALANCE_IN_PROGRESS
    log.holds = False
    log.commit()
    settle(log, [first, second, third, consumer])
    assert kind(log) == "consumer/Stable"
    assert sorted(len(numbers(each)) for each in (first, second, third, consumer)) == [1, 1, 2, 2]


def test_group_upgrade_that_cannot_be_written_leaves_the_classic_group_unchanged(
    log: ConsumerLog,
) -> None:
    (client,) = classic_group(log, 1)
    ticket, turn = ObedientClient(log, "n1").request(), log.turn()
    log.table.consumers.heartbeat(ticket, object(), turn)
    assert turn.appends and client.heartbeat() == 0
    assert kind(log) == "classic/Stable"


@pytest.mark.parametrize("may_upgrade, may_downgrade", [(False, True), (True, False)])
def test_group_with_migration_policy_disabled_keeps_its_protocol(
    log: ConsumerLog, may_upgrade: bool, may_downgrade: bool
) -> None:
    (client,) = classic_group(log, 1)
    log.may_upgrade, log.may_downgrade = may_upgrade, may_downgrade
    consumer = ObedientClient(log, "n1")
    answer = consumer.beat()
    if not may_upgrade:
        assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert answer.message and "disabled" in answer.message
        assert kind(log) == "classic/Stable" and client.heartbeat() == 0
        return
    settle(log, [client, consumer])
    consumer.leave()
    settle(log, [client])
    assert kind(log) == "consumer/Stable"
    assert numbers(client) == ALL


def test_group_of_another_protocol_type_is_not_upgraded(log: ConsumerLog) -> None:
    client = ClassicClient(log, "connect")
    told = client.join(protocol_type="connect")
    client.join(protocol_type="connect", member_id=told.answer.member_id)
    answer = ObedientClient(log, "n1").beat()
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message and "connect" in answer.message


@pytest.mark.parametrize("said", [b"", b"\0", b"\0\1\0\0\0\1\0\5t"])
def test_group_with_member_metadata_that_is_no_subscription_is_not_upgraded(
    log: ConsumerLog, said: bytes
) -> None:
    client = ClassicClient(log, "c")
    told = client.join(protocols=(("range", said),))
    client.join(member_id=told.answer.member_id, protocols=(("range", said),))
    answer = ObedientClient(log, "n1").beat()
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message and "malformed" in answer.message


def test_group_with_an_assignor_that_stores_its_own_data_is_not_upgraded(log: ConsumerLog) -> None:
    (client,) = classic_group(log, 1)
    group = log.table.find_classic(GROUP)
    group.members[client.member_id].assignment = b"\0\1" + bytes(4) + b"\0\0\0\1x"
    answer = ObedientClient(log, "n1").beat()
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.message and "assignor" in answer.message


def test_group_larger_than_a_consumer_group_may_be_is_not_upgraded(
    log: ConsumerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    classic_group(log, 2)
    monkeypatch.setattr(upgrade, "MEMBERS_MAX", 1)
    assert ObedientClient(log, "n1").beat().error == ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(log) == "classic/Stable"


def test_consumer_heartbeat_with_an_epoch_does_not_upgrade_a_classic_group(
    log: ConsumerLog,
) -> None:
    classic_group(log, 1)
    consumer = ObedientClient(log, "n1", epoch=3)
    assert consumer.beat().error == ErrorCode.GROUP_ID_NOT_FOUND


def test_classic_member_of_a_mixed_group_is_removed_at_its_own_session_timeout(
    log: ConsumerLog,
) -> None:
    first, second = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [first, second, consumer])
    for _ in range(SESSION_MS // INTERVAL_MS + 1):
        settle(log, [first, consumer], rounds=1)
    assert second.member_id not in log.group.members
    settle(log, [first, consumer])
    assert sorted(numbers(first) + numbers(consumer)) == ALL


def test_last_consumer_of_a_mixed_group_is_removed_at_its_session_timeout(log: ConsumerLog) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    settle(log, clients, rounds=log.settings.session_timeout_ms // INTERVAL_MS + 1)
    consumer.owned.clear()
    settle(log, clients)
    assert kind(log) == "classic/Stable"
    assert sorted(numbers(clients[0]) + numbers(clients[1])) == ALL


def test_classic_member_of_a_mixed_group_that_does_not_rejoin_is_removed(log: ConsumerLog) -> None:
    first, second = classic_group(log)
    consumer = ObedientClient(log, "n1")
    consumer.beat()
    for _ in range(REBALANCE_MS // INTERVAL_MS + 2):  # the member is alive, and does not rejoin
        second.heartbeat()
        settle(log, [first, consumer], rounds=1)
    second.owned.clear()
    assert second.member_id not in log.group.members
    settle(log, [first, second, consumer])
    assert all_numbers((first, second, consumer)) == ALL


def test_classic_member_of_a_mixed_group_that_never_syncs_is_removed(log: ConsumerLog) -> None:
    consumer = ObedientClient(log, "n1")
    consumer.beat()
    client = ClassicClient(log, "c1")
    client.member_id = client.join().answer.member_id
    client.generation = client.join().answer.generation
    for _ in range(REBALANCE_MS // INTERVAL_MS + 2):
        client.heartbeat()
        settle(log, [consumer], rounds=1)
    assert log.group.members.keys() == {"n1"}


def test_static_classic_member_that_returns_as_a_consumer_replaces_itself(
    log: ConsumerLog,
) -> None:
    clients = [ClassicClient(log, name, instance=name) for name in ("a", "b")]
    settle(log, clients)
    had = numbers(clients[1])
    successor = ObedientClient(log, "n1", instance="b")
    answer = successor.beat()
    assert answer.error == 0 and numbers(successor) == had
    assert kind(log) == "consumer/Stable" or kind(log) == "consumer/Reconciling"
    settle(log, [clients[0], successor])
    assert kind(log) == "consumer/Stable"
    assert clients[1].heartbeat() == ErrorCode.FENCED_INSTANCE_ID


def test_static_consumer_that_returns_as_a_classic_member_downgrades_the_group(
    log: ConsumerLog,
) -> None:
    stays = ClassicClient(log, "a", instance="a")
    leaves = ObedientClient(log, "n1", instance="b")
    settle(log, [stays, leaves])
    settle(log, [stays, leaves])
    generation, had, joins = stays.generation, numbers(leaves), stays.joins
    leaves.leave(-2)
    successor = ClassicClient(log, "b", instance="b")
    successor.step()
    settle(log, [stays, successor])
    assert kind(log) == "classic/Stable"
    assert numbers(successor) == had and stays.joins == joins, "nobody has to join again"
    assert successor.generation == generation
    log.load_anew()
    settle(log, [stays, successor])
    assert kind(log) == "classic/Stable" and successor.generation == generation


def test_static_consumer_that_becomes_classic_before_it_revoked_downgrades_the_group(
    log: ConsumerLog,
) -> None:
    stays = ClassicClient(log, "a", instance="a")
    leaves = ObedientClient(log, "n1", instance="b")
    settle(log, [leaves])
    stays.step()  # waits for the partitions that the other one has yet to revoke
    successor = ClassicClient(log, "b", instance="b")
    successor.step()
    leaves.owned.clear()
    check_owners([stays, successor])
    settle(log, [stays, successor])
    assert kind(log) == "classic/Stable"
    assert sorted(numbers(stays) + numbers(successor)) == ALL


def test_downgraded_group_that_is_loaded_makes_all_members_rejoin(log: ConsumerLog) -> None:
    clients = classic_group(log)
    consumer = ObedientClient(log, "n1")
    settle(log, [*clients, consumer])
    consumer.leave()
    log.load_anew()
    assert kind(log) == "classic/PreparingRebalance"
    settle(log, clients)
    log.load_anew()
    assert kind(log) == "classic/Stable"
    assert sorted(numbers(clients[0]) + numbers(clients[1])) == ALL


def test_assigned_partitions_of_a_deleted_topic_are_left_out_of_the_group_upgrade(
    log: ConsumerLog,
) -> None:
    (client,) = classic_group(log, 1)
    log.delete_topic(TOPIC)
    log.set_topic("u", 1)
    consumer = ObedientClient(log, "n1", topics=("u",))
    assert consumer.beat().error == 0
    assert log.group.assignments[client.member_id].assigned == {}
    assert consumer.owned == {(topic_id("u"), 0)}
