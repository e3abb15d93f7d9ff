"""Test that the observer of a run's requests keeps only bounded state."""

import pytest

from oncelog.deploy.faults.protocol_proxy.events import ConnectionClosed
from oncelog.proof.prove import observed as module
from oncelog.proof.prove.facts import Committed
from oncelog.proof.prove.observed import Observed
from oncelog.wire.messages.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from oncelog.wire.messages.produce_answer import (
    ProducedPartition,
    ProducedTopic,
    ProduceResponse,
)

from ...deploy.faults.protocol_proxy.frames import TOPIC_ID, answer_of, request_of
from ...deploy.faults.protocol_proxy.samples import G, T, produce_request

OFFSETS = {"name": T, "partitions": [{"partition_index": 0, "committed_offset": 7}]}


def commit(observed: Observed) -> None:
    request = request_of("OffsetCommit", 8, {"group_id": G, "topics": [OFFSETS]})
    topics = [{"name": T, "partitions": [{"partition_index": 0, "error_code": 0}]}]
    observed(request)
    observed(answer_of(request, {"topics": topics})[0])


def test_observed_produce_with_acks_zero_is_no_work_in_flight() -> None:
    observed = Observed([T], ["out"])
    for _ in range(3):
        observed(request_of("Produce", 9, produce_request(9, None, acks=0)))
    assert observed.open_work() == 0
    observed(request_of("Produce", 9, produce_request(9, None)))
    assert observed.open_work() == 1


@pytest.mark.parametrize(("api", "version"), [("OffsetCommit", 10), ("TxnOffsetCommit", 6)])
def test_observed_commits_by_topic_id_are_recognized(api: str, version: int) -> None:
    observed = Observed([T], ["out"])
    metadata = request_of("Metadata", 12, {"topics": None})
    observed(answer_of(metadata, {"topics": [{"name": T, "topic_id": TOPIC_ID}]})[0])
    wanted = {"topic_id": TOPIC_ID, "partitions": OFFSETS["partitions"]}
    values = {"group_id": G, "transactional_id": "x", "topics": [wanted]}
    request = request_of(api, version, values)
    told = [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "error_code": 0}]}]
    observed(request)
    observed(answer_of(request, {"topics": told})[0])
    (fact,) = observed.facts
    assert isinstance(fact, Committed) and (fact.topic, fact.partition, fact.offset) == (T, 0, 7)


def test_observed_batch_that_is_malformed_is_ignored() -> None:
    observed = Observed(["in"], [T])
    batch = [ProduceTopic(T, None, [ProducePartition(0, bytes(80))])]
    request = request_of("Produce", 9, ProduceRequest(None, -1, 1_000, batch))
    refused = [ProducedTopic(T, None, [ProducedPartition(0, 2)])]
    observed(request)
    observed(answer_of(request, ProduceResponse(refused))[0])
    assert observed.facts == [] and observed.open_work() == 0


def test_progress_of_other_instances_is_noticed_when_no_more_facts_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FACTS_MAX", 0)
    observed = Observed([T], ["out"])
    commit(observed)
    assert observed.has_gone_on("another", -0.5, frozenset()) and observed.facts == []


def test_observed_commits_of_an_instance_are_found_among_many_others() -> None:
    observed = Observed([T], ["out"])
    many = [{"partition_index": n, "committed_offset": 7} for n in range(128)]
    answered = [{"partition_index": n, "error_code": 0} for n in range(128)]
    for at_s in (1.0, 2.0, 3.0, 4.0):
        request = request_of(
            "OffsetCommit", 8, {"group_id": G, "topics": [{"name": T, "partitions": many}]}
        )
        answer, _ = answer_of(request, {"topics": [{"name": T, "partitions": answered}]})
        answer.at_s = at_s
        observed(answer)
    assert observed.committed_at_s("one", 0.5) == [1.0, 2.0, 3.0, 4.0]
    assert observed.committed_at_s("one", 2.0) == [3.0, 4.0]
    assert observed.committed_at_s("another", 0.5) == []


def test_observed_instance_waiting_for_an_answer_is_not_silent() -> None:
    observed = Observed([T], ["out"])
    request = request_of("JoinGroup", 5, {"group_id": G})
    observed(request)
    assert observed.silent_since_s("one") is None and observed.open_work() == 0
    answer, _ = answer_of(request, {})
    answer.at_s = 7.5
    observed(answer)
    assert observed.silent_since_s("one") is None, "it may be no member: a job with pauses"
    sync, _ = answer_of(request_of("SyncGroup", 3, {"group_id": G}), {})
    sync.at_s = 7.6
    observed(sync)
    assert observed.silent_since_s("one") == 7.6
    observed(request)
    observed(ConnectionClosed(request.connection, 8.0, ""))
    assert observed.silent_since_s("one") == request.at_s


def test_observed_answer_with_any_error_finishes_its_request() -> None:
    observed = Observed([T], ["out"])
    assert observed.has_finished("one", 0.0), "nobody here ends anything that can be seen"
    request = request_of("OffsetCommit", 8, {"group_id": G, "topics": [OFFSETS]})
    observed(request)
    assert not observed.has_finished("one", 0.0)
    topics = [{"name": T, "partitions": [{"partition_index": 0, "error_code": 22}]}]
    answer, _ = answer_of(request, {"topics": topics})
    answer.at_s = 5.0
    observed(answer)
    assert observed.has_finished("one", 4.0) and not observed.has_finished("one", 5.0)


def test_observed_instance_refused_repeatedly_makes_no_progress_until_its_next_commit() -> None:
    observed = Observed([T], ["out"])
    topics = [{"name": T, "partitions": [{"partition_index": 0, "error_code": 25}]}]
    for _ in range(5):
        assert observed.in_vain("one", float("-inf")) == ""
        request = request_of("OffsetCommit", 8, {"group_id": G, "topics": [OFFSETS]})
        observed(request)
        observed(answer_of(request, {"topics": topics})[0])
    told = "it tried 5 times without a commit (the last error UNKNOWN_MEMBER_ID)"
    assert observed.in_vain("one", float("-inf")) == told
    assert observed.in_vain("one", float("inf")) == ""
    commit(observed)
    assert observed.in_vain("one", float("-inf")) == ""


def test_observed_new_session_of_a_transactional_id_ends_its_transaction() -> None:
    observed = Observed(["in"], [T])
    observed(request_of("Produce", 9, produce_request(9, "app-1")))
    assert observed.open_transactions == {"app-1": "one"}
    request = request_of("InitProducerId", 5, {"transactional_id": "app-1"})
    observed(request)
    observed(answer_of(request, {"producer_id": 7, "producer_epoch": 1})[0])
    assert observed.open_transactions == {}


def test_observed_instance_has_continued_after_a_fault_at_its_next_commit_and_not_at_an_abort() -> (
    None
):
    observed = Observed(["in"], [T])
    assert observed.has_gone_through("one", 0.0), "nobody here commits anything that can be seen"
    for at_s, is_commit in ((5.0, False), (6.0, True)):
        values = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
        request = request_of("EndTxn", 3, {**values, "committed": is_commit})
        answer, _ = answer_of(request, {})
        answer.at_s = at_s
        observed(request)
        observed(answer)
        assert observed.has_gone_through("one", 4.0) is is_commit
    assert not observed.has_gone_through("one", 6.0)
