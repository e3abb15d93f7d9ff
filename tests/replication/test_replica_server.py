"""Test the answers of a leader's broker to the replica fetches of followers."""

import gc
from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.replication import replica_server
from oncelog.replication.follower_progress import PeerView
from oncelog.replication.messages import AddedSlot, MovedSlot, ReplicaFetchRequest, SlotAnswer
from oncelog.replication.replica_server import ReplicaServer, SendingThrottle
from oncelog.replication.replica_session import LeaderSession, LeaderSlot
from oncelog.wire.errors import ErrorCode, KafkaStorageError

from .leading import Leading
from .memory_log import MemoryLog, decode

KEYS = [(bytes([i]) * 16, i) for i in range(4)]
LIVE = {1: 11, 2: 12, 3: 13}


@dataclass
class Host:
    log: MemoryLog
    leader_epoch: int
    leader: Leading | None


class Broker:
    """Broker 1, which leads partitions. The test sends the fetches of followers 2 and 3."""

    def __init__(self, **limits: Any) -> None:
        self.peers = PeerView(live=LIVE)
        self.hosts: dict[tuple[bytes, int], Host] = {}
        self.server = ReplicaServer(self.hosts.get, self.peers, broker_epoch=11, **limits)
        self.session_id = self.session_epoch = 0
        self.now = 0

    def lead(self, key, epoch: int = 5, isr=(1, 2)) -> Host:
        log = self.hosts[key].log if key in self.hosts else MemoryLog()
        log.assign_epoch(epoch)
        leader = Leading(
            node_id=1,
            leader_epoch=epoch,
            partition_epoch=0,
            replicas=(1, 2, 3),
            isr=isr,
            min_insync_replicas=2,
            log=log,
            log_end_offset=log.log_end_offset,
            now_ms=self.now,
            lag_time_max_ms=1000,
            peers=self.peers,
        )
        self.hosts[key] = host = Host(log, epoch, leader)
        self.server.partition_changed(key, self.now)
        return host

    def append(self, key, count: int = 1) -> None:
        host = self.hosts[key]
        assert host.leader is not None
        for value in range(count):
            host.leader.appended(host.log.append(host.leader_epoch, value), self.now)
        self.server.appended(key)

    def poll(self, *, added=(), moved=(), removed=(), follower=2, context=None, **values):
        """Send a replica fetch of the current session, and return the progress that it caused."""
        request = ReplicaFetchRequest(
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            broker_epoch=values.get("broker_epoch", LIVE[follower]),
            max_wait_ms=500,
            max_bytes=values.get("max_bytes", 1 << 20),
            added=added,
            moved=moved,
            removed=removed,
        )
        self.session_epoch += 1
        progress = self.server.on_request(follower, request, context, self.now)
        for key, _ in progress.high_watermarks:
            self.server.watermarks_moved(key)
        return progress

    def responses(self):
        taken = self.server.take_responses(self.now)
        for due in taken:
            self.session_id = due.response.session_id
        return [due.response for due in taken]

    def answers(self) -> list[SlotAnswer]:
        (response,) = self.responses()
        assert not response.error
        return list(response.answers)


def added(slot: int, *, epoch: int = 5, at: tuple[int, int] = (0, -1)) -> AddedSlot:
    return AddedSlot(slot, *KEYS[slot], epoch, *at, 0)


def opened(*slots: int, **limits: Any) -> Broker:
    """Return a broker that leads these partitions, after follower 2 added them to its session."""
    broker = Broker(**limits)
    for slot in slots:
        broker.lead(KEYS[slot])
    broker.poll(added=[added(slot) for slot in slots])
    assert broker.responses() == []
    broker.now += 500
    broker.answers()
    broker.poll()
    return broker


def test_replica_fetch_waits_for_an_append_and_returns_the_appended_records() -> None:
    broker = opened(0, 1)
    assert broker.responses() == []
    broker.append(KEYS[1], 2)
    (answer,) = broker.answers()
    assert answer.slot == 1
    assert [entry.offset for entry in decode(answer.records)] == [0, 1]


@pytest.fixture
def broker() -> Broker:
    return opened(0)


def test_replica_fetch_without_new_records_expires_empty(broker: Broker) -> None:
    assert broker.server.next_deadline_ms == broker.now + 500
    broker.now += 499
    assert broker.responses() == []
    broker.now += 1
    assert broker.answers() == []
    assert broker.server.next_deadline_ms is None


def test_replica_fetch_position_acknowledges_all_earlier_records(broker: Broker) -> None:
    broker.append(KEYS[0], 3)
    broker.answers()
    progress = broker.poll(moved=[MovedSlot(0, 3, 5, 0)])
    assert progress.high_watermarks == [(KEYS[0], 3)]
    leader = broker.hosts[KEYS[0]].leader
    assert leader is not None and leader.high_watermark == 3


def test_high_watermark_advance_completes_no_waiting_replica_fetch_before_its_expiry(
    broker: Broker,
) -> None:
    broker.append(KEYS[0])
    broker.answers()
    broker.poll(moved=[MovedSlot(0, 1, 5, 0)])
    assert broker.responses() == []
    broker.now += 500
    assert broker.answers() == [SlotAnswer(0, 0, 1, 0)]
    broker.poll()
    broker.now += 500
    assert broker.answers() == []  # the high watermark was already sent


def test_high_watermark_is_sent_with_the_records_of_another_partition() -> None:
    broker = opened(0, 1)
    broker.append(KEYS[0])
    broker.answers()
    broker.poll(moved=[MovedSlot(0, 1, 5, 0)])
    broker.append(KEYS[1])
    assert {answer.slot: answer.high_watermark for answer in broker.answers()} == {1: 0, 0: 1}


def test_replica_fetch_response_repeats_no_records_while_the_position_is_unknown() -> None:
    broker = opened(0, 1)
    broker.append(KEYS[0])
    broker.answers()
    broker.append(KEYS[0])
    broker.poll()  # says nothing of slot 0
    assert broker.responses() == []
    broker.poll(moved=[MovedSlot(0, 1, 5, 0)])
    _, (answer,) = [response.answers for response in broker.responses()]
    assert [entry.offset for entry in decode(answer.records)] == [1]


def test_replica_fetch_with_a_changed_session_completes_the_waiting_fetch(broker: Broker) -> None:
    broker.lead(KEYS[1])
    broker.append(KEYS[1])
    broker.poll(added=[added(1)])
    superseded, current = broker.responses()
    assert superseded.answers == []
    assert [answer.slot for answer in current.answers] == [1]
    assert current.session_epoch == superseded.session_epoch + 1


def test_replica_fetch_byte_budget_rotates_over_the_partitions() -> None:
    broker = opened(0, 1, 2, response_bytes_max=60)
    for slot in range(3):
        broker.append(KEYS[slot], 10)
    positions = [0, 0, 0]
    served: list[int] = []
    for _ in range(6):
        answers = [answer for answer in broker.answers() if answer.records]
        assert sum(len(answer.records) for answer in answers) == 60
        for answer in answers:
            served.append(answer.slot)
            positions[answer.slot] += len(answer.records) // 30
        broker.poll(
            moved=[MovedSlot(a.slot, positions[a.slot], 5, 0) for a in answers], max_bytes=60
        )
    assert served[:3] == [0, 1, 2]
    assert max(positions) - min(positions) <= 2


def test_replica_fetch_response_of_many_small_batches_leaves_partitions_to_the_next_response(
    monkeypatch,
) -> None:
    monkeypatch.setattr(replica_server, "ANSWER_BATCHES_MAX", 12)
    broker = opened(0, 1, 2)
    for slot in range(3):
        broker.append(KEYS[slot], 10)
    first = [answer for answer in broker.answers() if answer.records]
    assert [(a.slot, len(a.records) // 30) for a in first] == [(0, 10), (1, 10)]
    broker.poll(moved=[MovedSlot(a.slot, 10, 5, 0) for a in first])
    (second,) = [answer for answer in broker.answers() if answer.records]
    assert (second.slot, len(second.records) // 30) == (2, 10)


def test_replica_fetch_of_a_batch_above_the_budget_returns_one_batch() -> None:
    broker = opened(0, 1, response_bytes_max=10)
    broker.append(KEYS[0], 2)
    broker.append(KEYS[1], 2)
    (answer,) = broker.answers()
    assert len(answer.records) == 30


def test_replica_fetch_of_a_diverging_follower_returns_the_epoch_and_no_acknowledgement() -> None:
    broker = Broker()
    host = broker.lead(KEYS[0])
    broker.append(KEYS[0], 4)
    progress = broker.poll(added=[added(0, at=(3, 4))])  # epoch 4 is unknown to us
    assert progress.high_watermarks == []
    assert host.leader is not None and host.leader.followers[2].log_end_offset == -1
    (answer,) = broker.answers()
    assert (answer.diverging_epoch, answer.diverging_end_offset) == (4, 0)
    assert answer.high_watermark == -1


@pytest.mark.parametrize("position", [(9, 5), (9, -1), (9, 7)])
def test_replica_fetch_beyond_the_log_end_acknowledges_no_record(position: tuple[int, int]) -> None:
    broker = Broker()
    host = broker.lead(KEYS[0])
    broker.append(KEYS[0], 4)
    broker.poll(added=[added(0, at=position)])
    (answer,) = broker.answers()
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE or answer.diverging_end_offset == 4
    assert host.leader is not None and host.leader.followers[2].log_end_offset == -1


def test_replica_fetch_before_the_log_start_returns_both_ends_of_the_log() -> None:
    broker = Broker()
    host = broker.lead(KEYS[0])
    broker.append(KEYS[0], 4)
    host.log.delete_before(3)
    broker.poll(added=[added(0)])
    (answer,) = broker.answers()
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.log_start_offset, answer.diverging_end_offset) == (3, 4)


def test_replica_fetch_with_a_newer_leader_epoch_waits_until_the_leader_has_that_epoch(
    broker: Broker,
) -> None:
    broker.append(KEYS[0])
    broker.answers()
    broker.poll(removed=[0], added=[added(1, epoch=6)])
    assert broker.responses() == []
    host = broker.lead(KEYS[1], epoch=6)
    assert host.leader is not None and host.leader.followers[2].log_end_offset == 0
    broker.append(KEYS[1])
    (answer,) = broker.answers()
    assert answer.slot == 1 and answer.records


def test_replica_fetch_kept_for_a_newer_epoch_keeps_its_broker_epoch(broker: Broker) -> None:
    """Without the follower's broker epoch the leader would never add the follower to the ISR."""
    broker.peers.live = {1: 11}
    broker.poll(added=[added(1, epoch=6)])
    broker.now += 500
    assert len(broker.responses()) == 2
    host = broker.lead(KEYS[1], epoch=6)
    assert host.leader is not None and host.leader.followers[2].broker_epoch == 12


def test_replica_fetch_with_an_older_leader_epoch_is_fenced_once(broker: Broker) -> None:
    broker.lead(KEYS[0], epoch=6)
    assert broker.answers() == [SlotAnswer(0, ErrorCode.FENCED_LEADER_EPOCH)]
    broker.append(KEYS[0])
    broker.poll()
    assert broker.responses() == []


def test_waiting_replica_fetch_is_answered_when_the_leader_resigns(broker: Broker) -> None:
    broker.append(KEYS[0])
    broker.answers()
    broker.poll()
    broker.hosts[KEYS[0]].leader = None
    broker.server.partition_changed(KEYS[0], broker.now)
    assert broker.answers() == [SlotAnswer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_replica_fetch_of_a_former_follower_incarnation_is_refused() -> None:
    broker = Broker()
    broker.lead(KEYS[0])
    broker.poll(added=[added(0)], broker_epoch=11)
    assert broker.answers() == [SlotAnswer(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_replica_fetch_with_a_failing_disk_fails_only_that_partition(monkeypatch) -> None:
    broker = opened(0, 1)

    def fail(*_, **__):
        raise KafkaStorageError("the disk is gone")

    broker.append(KEYS[0])
    broker.append(KEYS[1])
    monkeypatch.setattr(broker.hosts[KEYS[0]].log, "read", fail)
    answers = {answer.slot: answer for answer in broker.answers()}
    assert answers[0].error == ErrorCode.KAFKA_STORAGE_ERROR
    assert answers[1].records


def test_replica_fetch_out_of_sequence_ends_the_session(broker: Broker) -> None:
    broker.session_epoch += 1
    broker.poll()
    waiting, response = broker.responses()
    assert waiting.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    broker.poll()
    (response,) = broker.responses()
    assert response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_replica_session_of_a_former_leader_process_is_unknown() -> None:
    first = opened(0)
    second = Broker()
    second.session_id, second.session_epoch = first.session_id, first.session_epoch
    second.poll()
    (response,) = second.responses()
    assert response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_replica_session_opened_again_drops_the_former_session(broker: Broker) -> None:
    broker.session_id = broker.session_epoch = 0
    broker.poll(added=[added(0)])
    broker.append(KEYS[0])
    former, response = broker.responses()
    assert former.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert [answer.slot for answer in response.answers] == [0]
    assert len(broker.server._slots[KEYS[0]]) == 1


def test_replica_sessions_of_two_followers_are_independent(broker: Broker) -> None:
    request = ReplicaFetchRequest(
        session_id=0,
        session_epoch=0,
        broker_epoch=13,
        max_wait_ms=500,
        max_bytes=1000,
        added=[added(0)],
    )
    broker.server.on_request(3, request, "three", broker.now)
    broker.append(KEYS[0])
    taken = broker.server.take_responses(broker.now)
    assert sorted(due.follower for due in taken) == [2, 3]
    broker.server.forget_follower(3)
    assert len(broker.server._slots[KEYS[0]]) == 1


def test_replica_session_of_a_forgotten_follower_answers_its_waiting_fetch(broker: Broker) -> None:
    broker.server.forget_follower(2)
    (response,) = broker.responses()
    assert response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_replica_fetches_of_two_followers_at_one_offset_share_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = []
    read = MemoryLog.read

    def counted(log: MemoryLog, offset: int, *rest, **how):
        reads.append(offset)
        return read(log, offset, *rest, **how)

    monkeypatch.setattr(MemoryLog, "read", counted)
    broker = Broker()
    broker.lead(KEYS[0])
    for follower in (2, 3):
        broker.session_id = broker.session_epoch = 0
        broker.poll(added=[added(0)], follower=follower)
    broker.responses()
    broker.append(KEYS[0], 2)
    two, three = (response.answers[0].records for response in broker.responses())
    assert [entry.offset for entry in decode(two)] == [0, 1]
    assert two == three
    assert reads == [0]
    broker.append(KEYS[0])  # nothing is kept for the next round
    assert not broker.server._reads


def test_replica_session_that_ends_with_pending_changes_leaves_no_reference_cycle() -> None:
    """Brokers run no full garbage collection, so a session in a cycle would never be freed."""
    broker = Broker()
    for key in KEYS:
        broker.lead(key)
    gc.collect()
    gc.disable()
    try:
        known = set(map(id, gc.get_objects()))
        for _ in range(3):
            broker.session_id = broker.session_epoch = 0
            broker.poll(added=[added(slot) for slot in range(len(KEYS))])
            broker.responses()
            for key in KEYS:
                broker.append(key)
        broker.server.forget_follower(2)
        broker.responses()
        left = [
            one
            for one in gc.get_objects()
            if isinstance(one, LeaderSession | LeaderSlot) and id(one) not in known
        ]
        assert not left
    finally:
        gc.enable()


class Throttle(SendingThrottle):
    def __init__(self) -> None:
        self.is_on = True
        self.held = {KEYS[0]}
        self.noted: list[tuple[Any, int]] = []

    def holds(self, key, replica: int) -> bool:
        assert replica == 2
        return key in self.held

    def note(self, key, size_bytes: int) -> None:
        self.noted.append((key, size_bytes))


def test_replica_fetch_of_a_throttled_partition_is_answered_after_the_throttle():
    throttle = Throttle()
    broker = opened(0, 1, throttle=throttle)
    for key in KEYS[:2]:
        broker.append(key)
    (sent,) = broker.answers()
    assert sent.slot == 1
    assert throttle.noted == [(KEYS[1], len(sent.records))]
    broker.poll(moved=[MovedSlot(1, 1, 5, 0)])
    assert broker.responses() == []
    throttle.held.clear()
    broker.server.appended(KEYS[0])
    (sent,) = (answer for answer in broker.answers() if answer.records)
    assert (sent.slot, throttle.noted[1]) == (0, (KEYS[0], len(sent.records)))
