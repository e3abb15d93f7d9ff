"""Test replica fetch sessions at follower and leader, also with random losses of messages."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.replication import follower_session
from oncelog.replication.follower import Append, PartitionFollower
from oncelog.replication.follower_progress import PeerView
from oncelog.replication.follower_session import ADDED_MAX, FollowerSession
from oncelog.replication.messages import (
    AddedSlot,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from oncelog.replication.replica_server import PollResponse, ReplicaServer
from oncelog.replication.replica_session import ANSWERS_MAX, LeaderSession
from oncelog.wire.errors import ErrorCode

from ..present import present
from .leading import Leading
from .memory_log import MemoryLog

KEYS = [(bytes([i]) * 16, i) for i in range(4)]


def request_of(session: FollowerSession) -> ReplicaFetchRequest:
    return session.next_request(broker_epoch=12, max_wait_ms=500, max_bytes=1000)


def answered(request: ReplicaFetchRequest, *answers: SlotAnswer, error: int = 0):
    return ReplicaFetchResponse(
        session_id=request.session_id or 77,
        session_epoch=request.session_epoch,
        error=error,
        answers=answers,
    )


def opened(*keys) -> FollowerSession:
    session = FollowerSession()
    for key in keys:
        session.add(key, 1, (0, -1))
    request = request_of(session)
    session.on_response(request, answered(request))
    return session


def test_follower_session_sends_all_partitions_first_and_then_only_changes() -> None:
    session = FollowerSession()
    slots = [session.add(key, 1, (0, -1)) for key in KEYS]
    first = request_of(session)
    assert (first.session_id, len(first.added)) == (0, 4)
    assert not session.should_send(0)  # the session has no id yet
    session.on_response(first, answered(first))
    session.moved(slots[2], (5, 1))
    second = request_of(session)
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert (list(second.added), list(second.removed)) == ([], [])
    assert [tuple(moved) for moved in second.moved] == [(slots[2].number, 5, 1, 0)]


def test_follower_session_has_one_waiting_request_and_sends_changes_immediately() -> None:
    session = opened(KEYS[0])
    assert session.should_send(0)
    request_of(session)
    assert not session.should_send(0)
    session.add(KEYS[1], 1, (0, -1))
    assert session.should_send(0)


def test_follower_session_opening_request_does_not_wait_at_the_leader() -> None:
    """A follower adds many partitions in several requests, each after the previous answer."""
    session = FollowerSession()
    session.add(KEYS[0], 1, (0, -1))
    first = request_of(session)
    assert first.max_wait_ms == 0
    session.add(KEYS[1], 1, (0, -1))
    assert not session.should_send(0)
    session.on_response(first, answered(first))
    assert session.should_send(0)
    assert request_of(session).max_wait_ms == 500


def test_leader_session_answers_very_many_partitions_in_parts() -> None:
    """One answer for all partitions of a returning follower would block both brokers' loops."""
    session = LeaderSession(2, 7, lambda slot: None)
    count = 2 * ANSWERS_MAX + 10
    added = [AddedSlot(n, bytes(16), n, 1, 0, -1, 0) for n in range(1, count + 1)]
    request = ReplicaFetchRequest(7, 0, 12, max_wait_ms=500, max_bytes=1 << 20, added=added)
    for slot in session.apply(request)[0]:
        session.mark_dirty(slot)
    told: list[list[int]] = []
    while session.row:
        answers = session.collect(lambda slot, *_: SlotAnswer(slot.slot, 0, 0, records=b"r"), 1000)
        told.append([answer.slot for answer in answers])
    assert list(map(len, told)) == [ANSWERS_MAX, ANSWERS_MAX, 10]
    assert list(chain(*told)) == list(range(1, count + 1))


def test_follower_session_adds_very_many_partitions_in_parts_after_each_answer() -> None:
    """One request for all partitions would block the leader's loop for 60 ms."""
    session = FollowerSession()
    keys = [(bytes(16), index) for index in range(2 * ADDED_MAX + 10)]
    for key in keys:
        session.add(key, 1, (0, -1))
    parts: list[list[int]] = []
    while not parts or parts[-1]:
        request = request_of(session)
        parts.append([added.partition for added in request.added])
        assert request.max_wait_ms == (0 if len(parts) < 3 else 500)
        if len(parts) == 1:
            session.remove(keys[-1])
        if len(parts) < 3:
            assert not session.should_send(0)
        session.on_response(request, answered(request))
        assert session.should_send(0)
    assert list(map(len, parts)) == [ADDED_MAX, ADDED_MAX, 9, 0]
    assert [(bytes(16), index) for index in chain(*parts)] == keys[:-1]


def test_follower_session_without_partitions_sends_no_request() -> None:
    assert not FollowerSession().should_send(0)


def test_follower_session_partition_that_returns_gets_another_slot_number() -> None:
    session = opened(KEYS[0])
    former = session.slots[KEYS[0]].number
    session.add(KEYS[0], 2, (3, 1))
    request = request_of(session)
    assert list(request.removed) == [former]
    assert request.added[0].slot != former
    late = answered(request, SlotAnswer(former, 0, 9))
    assert list(present(session.on_response(request, late))) == []


def test_follower_session_omits_partitions_added_and_removed_between_two_requests() -> None:
    session = opened(KEYS[0])
    session.add(KEYS[1], 1, (0, -1))
    session.remove(KEYS[1])
    request = request_of(session)
    assert (list(request.added), list(request.removed)) == ([], [])


def test_follower_session_adds_a_failed_partition_again_after_its_wait() -> None:
    session = opened(KEYS[0], KEYS[1])
    slot = session.slots[KEYS[0]]
    session.retry(slot, at_ms=50)
    assert list(session.retries.values()) == [50]
    request = request_of(session)
    assert list(request.added) == []
    assert not session.should_send(49)
    assert session.should_send(50)
    assert [added.topic_id for added in request_of(session).added] == [KEYS[0][0]]


def test_follower_session_after_a_failure_restarts_without_partitions_that_wait_for_a_retry() -> (
    None
):
    session = opened(KEYS[0], KEYS[1])
    session.retry(session.slots[KEYS[0]], at_ms=50)
    request = request_of(session)
    assert session.on_failure(request)
    again = request_of(session)
    assert not session.on_failure(request)  # the failure is known already
    assert again.session_id == 0
    assert [added.topic_id for added in again.added] == [KEYS[1][0]]
    assert (
        list(present(session.on_response(request, answered(request)))) == []
    )  # the answer is of the former session


def test_follower_session_after_a_session_error_restarts() -> None:
    session = opened(KEYS[0])
    request = request_of(session)
    refused = answered(request, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.on_response(request, refused) is None
    assert request_of(session).session_id == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ReplicaFetchResponse(session_id=0, session_epoch=0),
        ReplicaFetchResponse(session_id=5, session_epoch=3),
    ],
)
def test_follower_session_with_an_answer_that_opens_no_session_ends(
    wrong: ReplicaFetchResponse,
) -> None:
    """If the session did not end, the follower would repeat the same request forever."""
    session = FollowerSession()
    session.add(KEYS[0], 1, (0, -1))
    assert session.on_response(request_of(session), wrong) is None
    assert request_of(session).session_id == 0


def test_follower_session_with_another_leader_process_restarts() -> None:
    session = opened(KEYS[0])
    request = request_of(session)
    strange = ReplicaFetchResponse(session_id=5, session_epoch=request.session_epoch)
    assert session.on_response(request, strange) is None
    assert request_of(session).session_id == 0


# -- the model


class Host:
    """A partition of the leader, broker 1."""

    def __init__(self, peers: PeerView) -> None:
        self.log = MemoryLog()
        self.leader_epoch = 1
        self.log.assign_epoch(1)
        self.leader = Leading(
            node_id=1,
            leader_epoch=1,
            partition_epoch=0,
            replicas=(1, 2),
            isr=(1, 2),
            min_insync_replicas=2,
            log=self.log,
            log_end_offset=0,
            now_ms=0,
            lag_time_max_ms=1000,
            peers=peers,
        )


class Pair:
    """A leader and a follower with the messages in flight, which a test delivers or loses."""

    def __init__(self) -> None:
        self.now = 0
        self.peers = PeerView(live={1: 1, 2: 2})
        self.incarnation = 1
        self.hosts = {key: Host(self.peers) for key in KEYS}
        self.start_leader()
        self.session = FollowerSession()
        self.logs: dict = {}
        self.to_leader: list[tuple[bytes, ReplicaFetchRequest]] = []
        self.to_follower: list[PollResponse] = []

    def start_leader(self) -> None:
        self.incarnation += 1
        self.server = ReplicaServer(
            self.hosts.get, self.peers, broker_epoch=self.incarnation, response_bytes_max=90
        )

    def append(self, key, count: int) -> None:
        host = self.hosts[key]
        for value in range(count):
            host.leader.appended(host.log.append(1, value), self.now)
        self.server.appended(key)

    def follow(self, key) -> None:
        log = self.logs.setdefault(key, MemoryLog())
        self.session.add(key, 1, PartitionFollower(1, 1).fetch_position(log), context=log)

    def send(self) -> None:
        while self.session.should_send(self.now):
            request = self.session.next_request(broker_epoch=2, max_wait_ms=500, max_bytes=9000)
            self.to_leader.append((encode_fetch_request(request), request))

    def serve(self, count: int) -> None:
        for header, request in self.to_leader[:count]:
            progress = self.server.on_request(2, decode_fetch_request(header), request, self.now)
            for key, _ in progress.high_watermarks:
                self.server.watermarks_moved(key)
        del self.to_leader[:count]
        self.to_follower += self.server.take_responses(self.now)

    def receive(self, count: int) -> None:
        for _, request, response in self.to_follower[:count]:
            decoded = decode_fetch_response(*encode_fetch_response(response))
            for slot, answer in self.session.on_response(request, decoded) or ():  # type: ignore[arg-type]
                log: MemoryLog = slot.context  # type: ignore[assignment]
                follower = PartitionFollower(1, 1)
                action = follower.on_response(answer, log)
                assert isinstance(action, Append)
                log.append_as_follower(action.records)  # asserts: no hole, no repetition
                log.advance_high_watermark(action.high_watermark)
                if action.records:
                    self.session.moved(slot, follower.fetch_position(log))
        del self.to_follower[:count]

    def lose(self) -> None:
        """Break the connection, lose all messages in flight, and notify the follower."""
        self.to_leader.clear()
        self.to_follower.clear()
        for request in list(self.session._outstanding):
            self.session.on_failure(request)

    def settle(self) -> None:
        for _ in range(80):
            self.send()
            self.serve(99)
            self.receive(99)
            self.now += 100


STEP = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(KEYS), st.integers(1, 5)),
    st.tuples(st.just("follow"), st.sampled_from(KEYS)),
    st.tuples(st.just("unfollow"), st.sampled_from(KEYS)),
    st.tuples(st.just("send")),
    st.tuples(st.just("serve"), st.integers(1, 3)),
    st.tuples(st.just("receive"), st.integers(1, 3)),
    st.tuples(st.just("time"), st.integers(1, 600)),
    st.tuples(st.just("retry"), st.sampled_from(KEYS)),
    st.tuples(st.just("lose")),
    st.tuples(st.just("restart")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=50), st.sampled_from((1, ADDED_MAX)))
def test_followed_logs_equal_their_leaders_logs_after_any_session_events(
    steps: list[tuple], added_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_session, "ADDED_MAX", added_max)
        converge(steps)


def converge(steps: list[tuple]) -> None:
    pair = Pair()
    for step in steps:
        match step:
            case ("append", key, count):
                pair.append(key, count)
            case ("follow", key):
                pair.follow(key)
            case ("unfollow", key):
                pair.session.remove(key)
            case ("send",):
                pair.send()
            case ("serve", count):
                pair.serve(count)
            case ("receive", count):
                pair.receive(count)
            case ("time", delta):
                pair.now += delta
            case ("retry", key) if key in pair.session.slots:
                pair.session.retry(pair.session.slots[key], pair.now + 200)
            case ("lose",):
                pair.lose()
            case ("restart",):
                pair.lose()
                pair.start_leader()
    pair.settle()
    for key, slot in pair.session.slots.items():
        log: MemoryLog = slot.context  # type: ignore[assignment]
        host = pair.hosts[key]
        assert log.entries == host.log.entries, "a slot was forgotten"
        assert log.high_watermark == host.leader.high_watermark == log.log_end_offset


def test_follower_session_of_500_partitions_sends_only_the_changed_partition() -> None:
    """After an append to one partition, the answer and the next request have only that one."""
    peers = PeerView(live={1: 1, 2: 2})
    keys = [(i.to_bytes(16), i) for i in range(ADDED_MAX)]
    hosts = {key: Host(peers) for key in keys}
    server = ReplicaServer(hosts.get, peers, broker_epoch=1)
    session = FollowerSession()
    for key in keys:
        session.add(key, 1, (0, -1))
    request = session.next_request(broker_epoch=2, max_wait_ms=500, max_bytes=1 << 20)
    server.on_request(2, request, request, 0)
    (due,) = server.take_responses(500)
    session.on_response(request, due.response)
    request = session.next_request(broker_epoch=2, max_wait_ms=500, max_bytes=1 << 20)
    assert len(encode_fetch_request(request)) < 40
    server.on_request(2, request, request, 500)
    host = hosts[keys[7]]
    host.leader.appended(host.log.append(1, 0), 500)
    server.appended(keys[7])
    (due,) = server.take_responses(500)
    assert len(due.response.answers) == 1
    header, _ = encode_fetch_response(due.response)
    assert len(header) < 40
