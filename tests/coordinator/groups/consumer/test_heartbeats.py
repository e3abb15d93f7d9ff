"""Test the answers to heartbeats of consumer groups, with their records and fencing."""

import re
from typing import Any

import pytest

from oncelog.coordinator.groups import consumer_groups
from oncelog.coordinator.groups.consumer.consumer_group import ConsumerGroup
from oncelog.coordinator.groups.consumer.record_codec import decode_consumer_key
from oncelog.coordinator.groups.consumer.records import (
    ConsumerMemberKey,
    CurrentAssignmentKey,
    GroupEpochKey,
    TargetAssignmentKey,
    TargetEpochKey,
)
from oncelog.coordinator.groups.consumer.target_assignment import (
    making_target_of,
    preferred_assignor,
)
from oncelog.wire.errors import ErrorCode

from ..step_lengths import longest_step
from .consumer_driver import (
    GROUP,
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    ConsumerLog,
    ObedientClient,
    indexes,
    settle,
    topic_id,
)

T = topic_id("t")
LIVE_ONLY = (
    "held_metadata",
    "appended_until",
    "checked_version",
    "resolved_creations",
    "long_work_after_ms",
)


@pytest.fixture
def log() -> ConsumerLog:
    log = ConsumerLog()
    log.set_topic("t", 6)
    return log


def member(log: ConsumerLog, member_id: str = "m", **options: Any) -> ObedientClient:
    client = ObedientClient(log, member_id, **options)
    assert client.beat().error == 0
    return client


def test_first_member_of_a_consumer_group_gets_all_partitions_in_its_first_answer(
    log: ConsumerLog,
) -> None:
    client = ObedientClient(log, "m")
    answer = client.beat()
    assert (answer.error, answer.member_id, answer.member_epoch) == (0, "m", 1)
    assert indexes(client) == list(range(6))
    kinds = [type(decode_consumer_key(key)) for key, _ in log.committed]
    assert kinds == [
        ConsumerMemberKey,
        GroupEpochKey,
        TargetAssignmentKey,
        TargetEpochKey,
        CurrentAssignmentKey,
    ]
    assert log.batches == 1
    assert log.group.state_name == "Stable"


def test_consumer_heartbeat_without_a_change_writes_no_record(log: ConsumerLog) -> None:
    client = member(log)
    written = len(log.committed)
    for request in (client.short_request(), client.request()):
        assert log.ask(request).answer.member_epoch == 1
    assert len(log.committed) == written
    assert log.ask(client.short_request()).answer.assignment is None
    assert log.beats == 1, "the first one compares the topics, the second one needs no decision"
    assert log.ask(client.request()).answer.assignment is not None, "a full request is told all"


def test_consumer_heartbeat_answered_without_a_full_decision_keeps_the_session(
    log: ConsumerLog,
) -> None:
    client = member(log)
    log.ask(client.short_request())
    for _ in range(4):
        log.pass_time(SESSION_MS - 1)
        assert log.beat(client.short_request(), log.turn()) is not None
    assert client.member_id in log.group.members


def test_consumer_heartbeat_with_uncommitted_group_records_needs_a_full_decision(
    log: ConsumerLog,
) -> None:
    client = member(log)
    log.ask(client.short_request())
    log.group.appended_until = 7
    assert log.beat(client.short_request(), log.turn(), replayed=6) is None
    assert log.beat(client.short_request(), log.turn(), replayed=7) is not None


def test_consumer_heartbeat_answer_waits_for_the_commit_of_its_records(log: ConsumerLog) -> None:
    log.holds = True
    ticket = log.ask(ObedientClient(log, "m").request())
    again = log.ask(ObedientClient(log, "m").request())
    assert ticket.is_waiting and again.is_waiting
    assert log.batches == 1, "the second says what the first has written"
    log.commit()
    assert ticket.answer.member_epoch == again.answer.member_epoch == 1


def test_second_member_gets_partitions_after_the_first_member_revoked_these_partitions(
    log: ConsumerLog,
) -> None:
    first = member(log, "a")
    log.pass_time(INTERVAL_MS)
    second = member(log, "b")
    assert second.epoch == 2 and not second.owned, "all of it is still the first one's"
    assert log.group.state_name == "Reconciling"
    answer = log.ask(first.short_request()).answer
    assert answer.member_epoch == 1, "its epoch stays until it has given up"
    assert answer.assignment is not None and len(answer.assignment[T]) == 3
    first.obey(answer)
    second.beat()
    assert not second.owned, "the first has not said so yet"
    first.beat()
    assert first.epoch == 2
    second.beat()
    assert sorted([*indexes(first), *indexes(second)]) == list(range(6))
    assert log.group.state_name == "Stable"


def test_consumer_group_assignment_waits_for_the_assignment_interval(log: ConsumerLog) -> None:
    member(log, "a")
    second = member(log, "b")
    assert second.epoch == 1 and log.group.state_name == "Assigning"
    assert (log.group.epoch, log.group.target.epoch) == (2, 1)
    log.pass_time(INTERVAL_MS)
    second.beat()
    assert log.group.target.epoch == 2


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (2, None, 0),
        (1, {}, 0),
        (1, {T: frozenset({0, 1})}, 0),
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {T: frozenset({9})}, ErrorCode.FENCED_MEMBER_EPOCH),
        (3, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, 0),
    ],
)
def test_consumer_heartbeat_with_another_epoch_is_fenced_except_after_a_lost_answer(
    log: ConsumerLog, epoch: int, owned: Any, error: int
) -> None:
    client = member(log)
    log.set_topic("t", 8)
    log.pass_time(INTERVAL_MS)
    client.beat()
    assert client.epoch == 2
    request = client.request if epoch == 0 else client.short_request
    assert log.ask(request(member_epoch=epoch, owned=owned)).answer.error == error


def test_consumer_heartbeat_of_an_unknown_member_is_refused(log: ConsumerLog) -> None:
    stranger = ObedientClient(log, "x", epoch=1)
    answer = log.ask(stranger.short_request()).answer
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    member(log)
    answer = log.ask(stranger.short_request()).answer
    assert answer.error == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.message == "Member x is not a member of group g."


def test_consumer_group_member_that_leaves_frees_its_partitions_immediately(
    log: ConsumerLog,
) -> None:
    clients = [member(log, "a"), member(log, "b")]
    settle(log, clients)
    clients[0].leave()
    settle(log, clients[1:], 2)
    assert indexes(clients[1]) == list(range(6))
    assert list(log.group.members) == ["b"]
    clients[1].leave()
    assert log.group.state_name == "Empty" and not log.group.holders


def test_last_consumer_group_member_that_leaves_clears_the_target_assignment(
    log: ConsumerLog,
) -> None:
    """A new member gets its partitions at once, without the assignment interval (Kafka 4.4)."""
    client = member(log, "a")
    client.leave()
    group = log.group
    assert (group.epoch, group.target.epoch, group.target.timestamp_ms) == (2, 2, 0)
    assert (group.metadata_hash, group.state_name) == (0, "Empty")
    assert member(log, "b").epoch == 3 and log.group.state_name == "Stable"
    log.load_anew()
    assert log.group.target.epoch == 3


def test_consumer_group_epoch_rises_when_the_server_assignor_changes(log: ConsumerLog) -> None:
    """As in Kafka since 4.4, a heartbeat that repeats the assignor does not raise the epoch."""
    client = member(log, "a")
    log.pass_time(INTERVAL_MS)
    assert log.ask(client.short_request(server_assignor="range")).answer.member_epoch == 2
    written = len(log.committed)
    log.pass_time(INTERVAL_MS)
    assert log.ask(client.short_request(server_assignor="range", member_epoch=2)).answer
    assert (log.group.epoch, len(log.committed)) == (2, written)


def test_server_assignor_without_a_majority_does_not_raise_the_group_epoch(
    log: ConsumerLog,
) -> None:
    clients = [member(log, name, assignor="uniform") for name in "abc"]
    settle(log, clients, 3)
    epoch = log.group.epoch
    log.pass_time(INTERVAL_MS)
    log.ask(clients[2].short_request(server_assignor="range"))
    assert log.group.epoch == epoch


@pytest.mark.parametrize("votes", [("range", "uniform"), ("uniform", "range")])
def test_server_assignors_with_equal_votes_are_chosen_by_name_and_not_by_order(
    log: ConsumerLog, votes: tuple[str, str]
) -> None:
    log.set_topic("t", 5)
    clients = [member(log, name, assignor=vote) for name, vote in zip("ab", votes, strict=True)]
    settle(log, clients, 2)
    assert preferred_assignor(log.group.members.values()) == "uniform"
    epoch = log.group.epoch
    log.load_anew()
    log.pass_time(INTERVAL_MS)
    for client, vote in zip(clients, votes, strict=True):
        log.ask(client.short_request(server_assignor=vote, member_epoch=client.epoch))
    assert log.group.epoch == epoch


def test_consumer_group_member_without_heartbeats_is_removed_at_its_session_timeout(
    log: ConsumerLog,
) -> None:
    clients = [member(log, "a"), member(log, "b")]
    settle(log, clients)
    log.pass_time(SESSION_MS - 2_000)
    clients[0].beat()
    log.pass_time(3_000)
    assert list(log.group.members) == ["a"]
    settle(log, clients[:1], 2)
    assert indexes(clients[0]) == list(range(6))
    assert clients[1].beat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_consumer_group_sessions_that_expire_together_raise_the_epoch_once_per_member(
    log: ConsumerLog,
) -> None:
    clients = [member(log, "a"), member(log, "b"), member(log, "c")]
    settle(log, clients)
    epoch = log.group.epoch
    log.pass_time(SESSION_MS + INTERVAL_MS)
    assert not log.group.members and log.group.epoch == epoch + 3


@pytest.mark.parametrize("is_loaded_anew", [False, True])
def test_consumer_group_member_that_revokes_nothing_is_removed_at_its_rebalance_timeout(
    log: ConsumerLog, is_loaded_anew: bool
) -> None:
    first = member(log, "a")
    log.pass_time(INTERVAL_MS)
    second = member(log, "b")
    log.ask(first.short_request())  # the answer names the partitions to revoke
    if is_loaded_anew:
        log.load_anew()
    for _ in range(REBALANCE_MS // 10_000):
        log.pass_time(10_000)
        log.ask(first.short_request())  # the member is alive, and keeps all partitions
        second.beat()
    log.pass_time(INTERVAL_MS)
    assert list(log.group.members) == ["b"]
    settle(log, [second], 2)
    assert indexes(second) == list(range(6))
    assert first.beat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_consumer_group_that_is_loaded_starts_all_sessions_again(log: ConsumerLog) -> None:
    member(log)
    log.pass_time(SESSION_MS - 1)
    log.load_anew()
    log.pass_time(SESSION_MS - 1)
    assert log.group.members
    log.pass_time(1)
    assert not log.group.members


def test_static_member_that_rejoins_a_consumer_group_gets_its_partitions(log: ConsumerLog) -> None:
    first, second = member(log, "a", instance="i"), member(log, "b")
    settle(log, [first, second])
    had, epoch = indexes(first), log.group.epoch
    assert first.leave(-2).member_epoch == -2
    assert list(log.group.instances) == ["i"]
    back = ObedientClient(log, "a2", instance="i")
    back.beat()
    assert indexes(back) == had and back.epoch == epoch == log.group.epoch
    assert sorted(log.group.members) == ["a2", "b"]
    assert first.beat().error == ErrorCode.UNRELEASED_INSTANCE_ID
    first.epoch = epoch
    assert first.beat(owned=None).error == ErrorCode.FENCED_INSTANCE_ID


def test_join_with_an_instance_id_of_a_live_member_is_refused(log: ConsumerLog) -> None:
    member(log, "a", instance="i")
    answer = log.ask(ObedientClient(log, "b", instance="i").request()).answer
    assert answer.error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert list(log.group.members) == ["a"]


def test_static_member_away_beyond_its_session_timeout_is_removed(log: ConsumerLog) -> None:
    first, second = member(log, "a", instance="i"), member(log, "b")
    settle(log, [first, second])
    first.leave(-2)
    for _ in range(5):
        log.pass_time(SESSION_MS // 5)
        second.beat()
    settle(log, [second], 3)
    assert indexes(second) == list(range(6)) and not log.group.instances


def test_subscribed_topic_created_deleted_or_extended_raises_the_group_epoch(
    log: ConsumerLog,
) -> None:
    client = member(log, topics=("t", "u"))
    log.set_topic("t", 8)
    log.pass_time(INTERVAL_MS)
    client.beat()
    assert len(client.owned) == 8
    log.set_topic("u", 2)
    log.set_topic("other", 2)
    log.pass_time(INTERVAL_MS)
    client.beat()
    assert len(client.owned) == 10
    log.delete_topic("t")
    settle(log, [client], 3)
    assert {topic for topic, _ in client.owned} == {topic_id("u")}
    assert log.group.epoch == 4


def test_topic_without_subscribers_does_not_raise_the_group_epoch(log: ConsumerLog) -> None:
    client = member(log)
    written = len(log.committed)
    log.set_topic("other", 3)
    client.beat()
    assert len(log.committed) == written


def test_unsubscribed_topic_is_taken_from_its_member_immediately(log: ConsumerLog) -> None:
    log.set_topic("u", 2)
    client = member(log, topics=("t", "u"))
    client.topics = ("u",)
    client.beat()
    assert {topic for topic, _ in client.owned} == {topic_id("u")}
    settle(log, [client], 2)
    assert log.group.state_name == "Stable"
    assert log.group.subscribed_topics == {"u"}


def test_subscribed_pattern_includes_topics_created_later(log: ConsumerLog) -> None:
    log.set_topic("other", 1)
    client = member(log, topics=(), pattern="t.*")
    assert client.epoch == 1
    settle(log, [client], 2)
    assert len(client.owned) == 6
    log.set_topic("t2", 2)
    log.pass_time(11_000)
    settle(log, [client], 2)
    assert {topic for topic, _ in client.owned} == {T, topic_id("t2")}
    client.pattern, client.topics = "", ("other",)
    settle(log, [client], 3)
    assert {topic for topic, _ in client.owned} == {topic_id("other")}
    assert not log.group.patterns


def test_subscribed_pattern_that_is_invalid_is_refused_without_a_change(log: ConsumerLog) -> None:
    client = ObedientClient(log, "m", topics=None, pattern="(t")
    assert log.ask(client.request()).answer.error == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not log.committed and GROUP not in log.table.groups


def test_consumer_group_at_its_maximum_size_refuses_another_member(log: ConsumerLog) -> None:
    member(log, "a")
    log.settings = type(log.settings)(max_size=1)
    answer = log.ask(ObedientClient(log, "b").request()).answer
    assert answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert log.ask(ObedientClient(log, "a").request()).answer.error == 0


def test_consumer_group_member_metadata_is_bounded_and_released(
    log: ConsumerLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_groups, "METADATA_BYTES_MAX", 3_000)
    clients = [member(log, "a"), member(log, "b")]
    third = ObedientClient(log, "c")
    assert log.ask(third.request()).answer.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert clients[0].beat().error == 0
    clients[0].leave()
    assert third.beat().error == 0
    for client in (clients[1], third):
        client.leave()
    assert log.table.held_metadata.size_bytes == 0


def test_consumer_group_with_1000_partitions_is_assigned_between_heartbeats(
    log: ConsumerLog,
) -> None:
    log.set_topic("t", 1_000)
    clients = [member(log, f"m{number}") for number in range(4)]
    settle(log, clients, 4)
    assert [len(client.owned) for client in clients] == [250] * 4


def test_consumer_group_loaded_from_its_records_equals_the_group_before(log: ConsumerLog) -> None:
    log.set_topic("u", 3)
    clients = [
        member(log, "a", topics=("t", "u"), assignor="range"),
        member(log, "b", instance="i"),
        member(log, "c", topics=(), pattern="u"),
    ]
    settle(log, clients, 3)
    clients[1].leave(-2)

    def facts(group: ConsumerGroup) -> list[Any]:
        return [
            getattr(group, name)
            for name in ConsumerGroup.__slots__
            if name not in (*LIVE_ONLY, "_state")
        ]

    before = facts(log.group)
    log.load_anew()
    assert facts(log.group) == before
    written = len(log.committed)
    assert clients[0].beat().error == 0
    assert len(log.committed) == written


def test_unsubscribed_pattern_raises_the_group_epoch_once(log: ConsumerLog) -> None:
    log.set_topic("u", 2)
    clients = [member(log, "a"), member(log, "b", topics=(), pattern="u")]
    settle(log, clients, 4)
    epoch = log.group.epoch
    clients[1].pattern, clients[1].topics = "", ("t",)
    settle(log, clients, 4)
    assert log.group.epoch == epoch + 1
    assert not log.group.patterns and log.group.subscribed_topics == {"t"}
    assert sorted([*indexes(clients[0]), *indexes(clients[1])]) == list(range(6))


def test_consumer_group_of_500_members_and_1000_partitions_is_assigned_in_short_steps(
    log: ConsumerLog,
) -> None:
    log.set_topic("t", 1_000)
    clients = [ObedientClient(log, f"member-{number}") for number in range(500)]
    for client in clients:
        client.beat()
    records, longest_ms = longest_step(lambda: making_target_of(log.group, log.by_name, 1))
    assert len(records) == 501 and longest_ms < 20
    settle(log, clients, 4)
    assert [len(client.owned) for client in clients] == [2] * 500


@pytest.mark.in_turn
def test_consumer_group_with_200_patterns_is_assigned_in_short_steps(log: ConsumerLog) -> None:
    """Each of 200 members is subscribed to one pattern over 3,000 topics."""
    for number in range(3_000):
        log.set_topic(f"topic-{number}", 1)
    clients = [
        ObedientClient(log, f"m{number}", topics=(), pattern=f"topic-{number}[0-9]*")
        for number in range(200)
    ]
    for client in clients:
        client.beat()
    log.pass_time(11_000)
    for client in clients:
        client.beat()
    making = longest_step(lambda: making_target_of(log.group, log.by_name, 1))
    assert making[1] < 20
    settle(log, clients, 4)
    wanted = {name for name in log.by_name if re.match("topic-(1?[0-9]?[0-9])[0-9]*$", name)}
    owned = {topic for client in clients for topic, _ in client.owned}
    assert owned == set(map(topic_id, wanted))
