"""Test the trace of produce requests that is read from librdkafka's debug log."""

import pytest

from oncelog.proof.demo.batch_trace import BatchTrace

HEAD = "[rdkafka#producer-2] [thrd:127.0.0.1:2/1]: 127.0.0.1:2/1: t"


def sent(partition: int, sequence: int, count: int = 10) -> str:
    return (
        f"PRODUCE {HEAD} [{partition}]: Produce MessageSet with {count} message(s) (77 bytes, "
        f"ApiVersion 10, MsgVersion 2, MsgId 1, BaseSeq {sequence}, PID{{Id:0,Epoch:0}}, none)"
    )


def ended(partition: int, sequence: int, how: str, count: int = 10) -> str:
    return (
        f"MSGSET {HEAD} [{partition}]: MessageSet with {count} message(s) "
        f"(MsgId 1, BaseSeq {sequence}) {how}"
    )


@pytest.fixture
def trace() -> BatchTrace:
    return BatchTrace()


def test_batch_trace_with_a_lost_response_shows_a_retry(trace: BatchTrace):
    trace.feed(sent(2, 0))
    trace.feed(sent(2, 10))
    trace.feed(ended(2, 0, "delivered"))
    before = trace.counts
    error = "encountered error: Local: Broker transport failure "
    trace.feed(ended(2, 10, error + "(actions Refresh,MsgPossiblyPersisted)", count=40))
    trace.feed(sent(2, 10))
    trace.feed(ended(2, 10, "delivered"))
    since = trace.counts.since(before)
    assert (since.unanswered, since.unanswered_records, since.sent_again) == (1, 40, 1)
    assert (trace.counts.sent, trace.counts.acknowledged) == (3, 2)


def test_batch_trace_with_an_error_response_shows_an_answer(trace: BatchTrace):
    trace.feed(sent(0, 0))
    refusal = "encountered error: Broker: Not leader for partition "
    trace.feed(ended(0, 0, refusal + "(actions Refresh,MsgNotPersisted)"))
    assert trace.counts.unanswered == 0


def test_batch_trace_of_equal_sequences_in_two_partitions_shows_no_retry(trace: BatchTrace):
    trace.feed(sent(0, 0))
    trace.feed(sent(1, 0))
    assert trace.counts.sent_again == 0


def test_batch_trace_of_a_requeued_batch_without_idempotence_shows_a_retry(trace: BatchTrace):
    trace.feed(sent(0, -1))
    trace.feed(sent(0, -1))
    assert trace.counts.sent_again == 0
    error = "encountered error: Broker: Request timed out "
    trace.feed(ended(0, -1, error + "(actions Retry,MsgPossiblyPersisted)"))
    assert trace.counts.sent_again == 1


def test_batch_trace_ignores_other_log_lines(trace: BatchTrace):
    trace.feed("FAIL [rdkafka#producer-2] [thrd:x]: Disconnected: connection reset by peer")
    assert trace.counts.sent == 0
