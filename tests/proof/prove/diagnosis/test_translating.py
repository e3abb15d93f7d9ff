"""Test that client frames of any version are translated to the facts that a diagnosis gets."""

import pytest

from oncelog.deploy.faults.protocol_proxy.events import (
    Answer,
    Connection,
    ConnectionClosed,
    FaultMade,
)
from oncelog.proof.prove.diagnosis import seen as s
from oncelog.proof.prove.diagnosis import translating
from oncelog.proof.prove.diagnosis.translating import Translator
from oncelog.wire.messages import fetch, produce
from oncelog.wire.records import Record, encode_batch

from ....deploy.faults.protocol_proxy.frames import TOPIC_ID, answer_of, request_of

PLACE = ("orders", 0)
PARTITION = {"partition_index": 0, "committed_offset": 7}
END = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "committed": True}


def seen(*events) -> list[s.Sighting]:
    translator = Translator()
    found = [one for event in events for one in translator.sightings(event)]
    return [one for one in found if not isinstance(one, s.SeenRequest)]


@pytest.mark.parametrize(
    ("version", "member", "is_fenced"),
    [
        (2, {}, False),
        (3, {"generation_id": -1, "member_id": ""}, False),
        (3, {"generation_id": 4, "member_id": ""}, False),
        (3, {"generation_id": 4, "member_id": "m"}, True),
        (5, {"generation_id": 4, "member_id": "m"}, True),
        (6, {"generation_id_or_member_epoch": 4, "member_id": "m"}, True),
        (6, {"generation_id_or_member_epoch": -1, "member_id": "m"}, False),
    ],
)
def test_diagnosis_txn_offset_commit_is_translated_with_generation_and_member(
    version, member, is_fenced
):
    values = {
        "transactional_id": "t", "group_id": "g", "producer_id": 1, "producer_epoch": 0,
        "topics": [{"name": "orders", "topic_id": TOPIC_ID, "partitions": [PARTITION]}], **member,
    }  # fmt: skip
    metadata = request_of("Metadata", 12, {"topics": None})
    learned = answer_of(metadata, {"topics": [{"name": "orders", "topic_id": TOPIC_ID}]})[0]
    (found,) = seen(learned, request_of("TxnOffsetCommit", version, values))
    assert isinstance(found, s.SeenTxnOffsetCommit)
    assert found.is_fenced is is_fenced
    assert found.offsets == ((PLACE, 7),)
    assert (found.transactional_id, found.group) == ("t", "g")


@pytest.mark.parametrize(
    ("version", "values", "is_stable"),
    [
        (5, {"group_id": "g", "topics": None}, False),
        (7, {"group_id": "g", "topics": None, "require_stable": False}, False),
        (7, {"group_id": "g", "topics": None, "require_stable": True}, True),
        (8, {"groups": [{"group_id": "g", "topics": None}], "require_stable": True}, True),
    ],
)
def test_diagnosis_offset_fetch_is_translated_with_its_require_stable_flag(
    version, values, is_stable
):
    topics = [{"name": "orders", "partitions": [PARTITION]}]
    told = {"topics": topics} if version < 8 else {"groups": [{"group_id": "g", "topics": topics}]}
    (found,) = seen(answer_of(request_of("OffsetFetch", version, values), told)[0])
    assert isinstance(found, s.SeenOffsetFetch)
    assert (found.group, found.is_stable) == ("g", is_stable)
    assert found.offsets == ((PLACE, 7),)


def _batch(**fields) -> bytes:
    return encode_batch([Record(5, 0, b"k", b"v"), Record(6, 0, None, b"w")], **fields)


def test_diagnosis_produce_is_translated_with_acks_ids_and_keys_of_its_batches():
    batch = _batch(base_offset=5, producer_id=9, producer_epoch=0, base_sequence=0,
                   transactional=True)  # fmt: skip
    partitions = [produce.ProducePartition(0, batch)]
    values = produce.ProduceRequest("t", 1, 100, [produce.ProduceTopic("orders", None, partitions)])
    (found,) = seen(request_of("Produce", 9, values, correlation_id=3))
    assert isinstance(found, s.SeenProduce)
    assert (found.acks, found.transactional_id, found.number) == (1, "t", 3)
    (sent,) = found.batches
    assert (sent.partition, sent.producer_id, sent.is_transactional) == (PLACE, 9, True)
    assert sent.count == 2
    assert [key for key, _ in sent.records] == [hash(b"k"), hash(b"w")]


def _request_of(*batches: bytes):
    """Return a Produce with a batch for each partition."""
    partitions = [produce.ProducePartition(n, each) for n, each in enumerate(batches)]
    topics = [produce.ProduceTopic("orders", None, partitions)]
    return request_of("Produce", 9, produce.ProduceRequest("t", -1, 100, topics))


def _records_of(*batches: bytes) -> list[tuple[s.Keyed, ...]]:
    """Return the decoded records of each batch, which is sent in a Produce of its own."""
    sent = [one for one in seen(*map(_request_of, batches)) if isinstance(one, s.SeenProduce)]
    return [batch.records for one in sent for batch in one.batches]


@pytest.mark.parametrize("codec", [1, 4], ids=["gzip", "zstd"])
def test_diagnosis_batch_of_which_too_much_would_be_decompressed_is_not_decoded(codec):
    """The decompression would keep the proxy's event loop for 0.1 s."""
    batch = encode_batch([Record(0, 0, b"k", bytes(2_000_000))], compression=codec)
    assert len(batch) < translating.BATCH_BYTES_MAX
    assert _records_of(batch) == [()]


def test_diagnosis_batch_with_malformed_records_hides_no_other_batch():
    batch = encode_batch([Record(0, 0, b"k", b"v", (("name", b""),))])
    malformed = batch.replace(b"name", b"n\xffme")
    assert [len(each) for each in _records_of(malformed, batch)] == [0, 1]
    (found,) = seen(_request_of(malformed, batch))
    assert isinstance(found, s.SeenProduce)
    assert [len(each.records) for each in found.batches] == [0, 1]


def test_diagnosis_partition_of_an_old_format_hides_no_other_partition():
    old = bytearray(_batch())
    old[16] = 1  # magic
    (found,) = seen(_request_of(bytes(old), _batch()))
    assert isinstance(found, s.SeenProduce)
    assert [each.partition for each in found.batches] == [("orders", 1)]
    request, answer = _fetch(1)
    other = fetch.FetchedPartition(1, records=_batch(base_offset=5))
    answer.topics[0].partitions[0].records = bytes(old)
    answer.topics[0].partitions.append(other)
    (came,) = seen(answer_of(request, answer)[0])
    assert isinstance(came, s.SeenRecords)
    assert came.partition[1] == 1


def test_diagnosis_compressed_batches_beyond_the_bytes_of_a_second_are_not_decoded():
    batch = encode_batch([Record(0, 0, b"k", bytes(1_000_000))], compression=1)
    assert [bool(each) for each in _records_of(*[batch] * 9)] == [True] * 5 + [False] * 4


def test_diagnosis_batch_with_a_negative_record_count_leaves_the_budget_as_it_is(monkeypatch):
    monkeypatch.setattr(translating, "RECORDS_PER_S_MAX", 1)
    malformed = bytearray(_batch())
    malformed[57:61] = (-5).to_bytes(4, signed=True)
    assert _records_of(bytes(malformed), _batch()) == [(), ()]


def _fetch(isolation_level: int, replica_id: int = -1):
    topics = [fetch.FetchTopic(None, TOPIC_ID, [fetch.FetchPartition(0, 5, 1000)])]
    asked = fetch.FetchRequest(0, 0, topics, isolation_level=isolation_level, replica_id=replica_id)
    request = request_of("Fetch", 13, asked)
    partition = fetch.FetchedPartition(0, records=_batch(base_offset=5, transactional=True))
    return request, fetch.FetchResponse([fetch.FetchedTopic(None, TOPIC_ID, [partition])])


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_diagnosis_fetch_by_topic_id_is_translated_with_the_name_from_metadata(isolation_level):
    request, answer = _fetch(isolation_level)
    metadata, _ = answer_of(
        request_of("Metadata", 12, {"topics": None}),
        {"topics": [{"name": "orders", "topic_id": TOPIC_ID, "partitions": []}]},
    )
    asked, came = seen(metadata, request, answer_of(request, answer)[0])
    assert isinstance(asked, s.SeenFetch)
    assert asked.positions == ((PLACE, 5),)
    assert isinstance(came, s.SeenRecords)
    assert came.is_transactional
    assert came.is_read_committed is bool(isolation_level)
    assert came.keys == ((5, hash(b"k")), (6, hash(b"w")))


def test_diagnosis_fetch_of_a_follower_is_not_a_consumer():
    request, answer = _fetch(0, replica_id=2)
    assert seen(request, answer_of(request, answer)[0]) == []


def test_diagnosis_records_beyond_the_budget_are_not_decoded(monkeypatch):
    monkeypatch.setattr(translating, "RECORDS_PER_S_MAX", 1)
    request, answer = _fetch(1)
    came = seen(answer_of(request, answer)[0])[0]
    assert isinstance(came, s.SeenRecords)
    assert came.keys == ()
    assert came.is_transactional


def test_diagnosis_end_txn_with_a_lost_answer_has_not_ended_for_its_client():
    request = request_of("EndTxn", 3, END)
    answer, frame = answer_of(request, {})
    lost = Answer(request, frame, 0.0, True, "lost")
    made_up = Answer(request, frame, 0.0, False, "delivered")
    (asked,) = seen(request, lost, made_up)
    assert isinstance(asked, s.SeenEndTxn)
    assert (asked.version, asked.is_commit) == (3, True)
    assert [type(one) for one in seen(answer)] == [s.SeenEnded]


@pytest.mark.parametrize(
    ("errors", "is_refused", "is_known"),
    [
        ([29], True, True), ([87, 10], True, True), ([6], False, False), ([20], False, False),
        ([0], False, True),
    ],
)  # fmt: skip
def test_diagnosis_produce_is_refused_if_no_broker_has_written_any_batch(
    errors, is_refused, is_known
):
    """A new leader's error 6 and error 20 may follow an append."""
    request = request_of("Produce", 9, produce.ProduceRequest("t", -1, 100, []))
    partitions = [produce.ProducedPartition(n, error) for n, error in enumerate(errors)]
    answer = produce.ProduceResponse([produce.ProducedTopic("orders", None, partitions)])
    (found,) = seen(answer_of(request, answer)[0])
    assert isinstance(found, s.SeenProduced)
    assert (found.is_refused, found.has_error) == (is_refused, errors != [0])
    assert found.is_known is is_known
    assert found.partitions == frozenset()


def test_diagnosis_produce_with_several_results_is_translated_with_each_of_them():
    request = request_of("Produce", 9, produce.ProduceRequest("t", -1, 100, []))
    partitions = [produce.ProducedPartition(n, error) for n, error in enumerate((0, 29, 6, 0, 29))]
    answer = produce.ProduceResponse([produce.ProducedTopic("orders", None, partitions)])
    written, refused, in_doubt = seen(answer_of(request, answer)[0])
    assert isinstance(written, s.SeenProduced)
    assert (written.is_known, written.has_error, written.is_refused) == (True, False, False)
    assert written.partitions == {("orders", 0), ("orders", 3)}
    assert isinstance(refused, s.SeenProduced)
    assert (refused.is_known, refused.has_error, refused.is_refused) == (True, True, True)
    assert refused.partitions == {("orders", 1), ("orders", 4)}
    assert isinstance(in_doubt, s.SeenProduced)
    assert (in_doubt.is_known, in_doubt.has_error, in_doubt.is_refused) == (False, True, False)
    assert in_doubt.partitions == frozenset(), "all that are left"


@pytest.mark.parametrize("api", ["EndTxn", "Produce"])
@pytest.mark.parametrize("fate", ["delivered", "lost"])
def test_diagnosis_held_answer_has_come_when_it_is_released(api, fate):
    produced = produce.ProduceRequest("t", -1, 100, [])
    request = request_of("EndTxn", 3, END) if api == "EndTxn" else request_of(api, 9, produced)
    held, _ = answer_of(request, {} if api == "EndTxn" else produce.ProduceResponse([]))
    held.fate = "held"
    translator = Translator()
    assert list(translator.sightings(held)) == []
    held.fate = fate
    released = list(translator.sightings(FaultMade(None, request, 1.0, "it came later")))
    assert [one.at_s for one in released] == [1.0] * len(released)
    if api == "Produce":
        (seen_answer,) = released
        assert isinstance(seen_answer, s.SeenProduced)
        assert seen_answer.is_known is (fate == "delivered")
    else:
        assert [type(one) for one in released] == [s.SeenEnded] * (fate == "delivered")


def test_diagnosis_held_answer_of_a_connection_that_is_cut_never_comes():
    request = request_of("EndTxn", 3, END)
    held, _ = answer_of(request, {})
    held.fate = "held"
    closed = ConnectionClosed(request.connection, 0.5, "it was cut")
    late = FaultMade(None, request, 1.0, "it came later")
    assert [type(one) for one in seen(held, closed, late)] == [s.SeenClosed]


def test_diagnosis_held_produce_of_a_connection_that_is_cut_was_executed():
    """The broker has written the batch, and its client does not know of it."""
    request = request_of("Produce", 9, produce.ProduceRequest("t", -1, 100, []))
    held, _ = answer_of(request, produce.ProduceResponse([]))
    held.fate = "held"
    executed, closed = seen(held, ConnectionClosed(request.connection, 0.5, "it was cut"))
    assert isinstance(executed, s.SeenProduced)
    assert (executed.at_s, executed.is_known, executed.has_error) == (0.5, False, False)
    assert isinstance(closed, s.SeenClosed)


def test_diagnosis_held_end_of_a_transaction_is_ignored_when_the_client_has_begun_anew():
    """The client ignores the answer, which would end its next transaction here."""
    request = request_of("EndTxn", 3, END)
    held, _ = answer_of(request, {})
    held.fate = "held"
    anew = {"transactional_id": "t", "transaction_timeout": 5_000}
    translator = Translator()
    for event in (held, request_of("InitProducerId", 3, anew)):
        assert not [one for one in translator.sightings(event) if isinstance(one, s.SeenEnded)]
    held.fate = "delivered"
    assert list(translator.sightings(FaultMade(None, request, 1.0, "it came later"))) == []


def test_diagnosis_refused_transactional_offsets_are_translated_with_the_error():
    values = {
        "transactional_id": "t", "group_id": "g", "producer_id": 1, "producer_epoch": 0,
        "generation_id": 4, "member_id": "m",
        "topics": [{"name": "orders", "partitions": [PARTITION]}],
    }  # fmt: skip
    request = request_of("TxnOffsetCommit", 5, values)
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "error_code": 113}]}]
    (found,) = seen(answer_of(request, {"topics": topics})[0])
    assert isinstance(found, s.SeenOffsetsRefused)
    assert (found.transactional_id, found.group) == ("t", "g")
    assert found.error == "STALE_MEMBER_EPOCH"


def test_diagnosis_join_of_a_member_is_translated_with_its_timeouts():
    values = {
        "group_id": "g", "session_timeout": 6_000, "rebalance_timeout": 300_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [],
    }  # fmt: skip
    (found,) = seen(answer_of(request_of("JoinGroup", 5, values), {"generation_id": 1})[0])
    assert isinstance(found, s.SeenJoin)
    assert (found.session_ms, found.rebalance_ms) == (6_000, 300_000)


def test_diagnosis_request_that_cannot_be_decoded_is_ignored():
    request = request_of("EndTxn", 3, END)
    request.version = 99
    assert seen(request) == []


def test_closed_connection_is_seen_by_the_diagnosis():
    closed = ConnectionClosed(Connection(4, "one", 1, 2), 3.0, "over")
    assert seen(closed) == [s.SeenClosed(at_s=3.0, instance="one", connection=4)]


@pytest.mark.parametrize(("after_s", "waited"), [(9.5, [9.5]), (1.0, [])])
def test_diagnosis_reports_a_long_wait_for_an_answer_other_than_to_a_fetch(after_s, waited):
    """Either the broker answers late, or the proxy delays the answer and reports the delay."""
    request = request_of("EndTxn", 3, END)
    answer, _ = answer_of(request, {})
    answer.at_s = request.at_s + after_s
    for event in (answer, FaultMade(None, request, request.at_s + after_s, "it came later")):
        waits = [one for one in seen(event) if isinstance(one, s.SeenWait)]
        assert [one.waited_s for one in waits] == waited
    asked, _ = _fetch(0)
    assert seen(FaultMade(None, asked, asked.at_s + after_s, "it came later")) == []
