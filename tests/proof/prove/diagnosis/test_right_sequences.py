"""Test that correct resends, slow commits and waits for brokers get no finding."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncelog.proof.prove.diagnosis import seen as s
from oncelog.proof.prove.diagnosis.diagnosis import Diagnosis

from .histories import (
    IDS,
    INPUT,
    OUTPUT,
    Application,
    aborted_batch,
    numbered,
    results,
    started,
    together,
)

History = Iterator[s.Sighting]


def sent_again_while_the_first_connection_is_open() -> History:
    """A producer sends a batch again on a new connection, and gets the answer there.

    The proxy sees the end of the slow first connection only after the commit.
    """
    app = yield from started()
    yield from app.fetch(3)
    first, another = numbered(app, 0, 1, 2), next(IDS)
    yield first
    yield replace(first, connection=another, number=99)
    yield s.SeenProduced(**app.at(another), number=99)
    yield app.send_offsets(3)
    yield from app.end()
    yield app.produced()


def other_records_after_a_refusal() -> History:
    """A producer gives the sequence number of a refused batch to the next batch, as Java's does."""
    app = yield from started(name="")
    yield from app.fetch(6)
    for is_refused in (True, False):
        yield numbered(app, 0, 1, 2)
        refused = replace(app.produced(is_known=False), has_error=True, is_refused=is_refused)
        yield refused
        yield numbered(app, 3, 4, 5)
        yield replace(refused, number=app.number)


def other_records_after_an_abort(*, lost: int = 0) -> History:
    """After an abort, librdkafka gives an unanswered batch's sequence number to the next batch."""
    app = yield from started()
    yield from aborted_batch(app)
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=lost)


def other_records_after_a_refusal_beside_a_producer_without_answers() -> History:
    """A refusal is slow, and another producer with acks=0 sends thousands of requests meanwhile."""
    app = yield from started(name="")
    yield from app.fetch(6)
    first = numbered(app, 0, 1, 2)
    yield first
    for number in range(2_500):
        yield s.SeenProduce(at_s=app.at_s, instance="metrics", number=number, acks=0, batches=())
    yield replace(app.produced(is_known=False), number=first.number, has_error=True)
    yield numbered(app, 3, 4, 5)
    yield app.produced()


def equal_record_of_a_later_producer(*, is_slow: bool) -> History:
    """A job writes its result with a new producer each time. One answer is lost and sent again.

    is_slow: the proxy holds the first answer until the batch was sent again with success.
    """
    app = yield from started(name="")
    yield numbered(app, 1)
    closed = s.SeenClosed(**app.at(app.writer))
    yield from () if is_slow else (closed,)
    for producer_id in (7, 8):
        app.producer_id, app.connections = producer_id, (app.reader, next(IDS))
        yield s.SeenOpened(**app.at(app.writer))
        if producer_id == 8:
            yield from (closed,) if is_slow else ()
            yield app.init()
        yield numbered(app, 1)
        yield app.produced()


def equal_record_of_a_later_producer_after_a_lost_answer() -> History:
    return equal_record_of_a_later_producer(is_slow=False)


def equal_record_of_a_later_producer_after_a_slow_answer() -> History:
    return equal_record_of_a_later_producer(is_slow=True)


def equal_record_of_a_later_producer_after_a_success() -> History:
    """A producer has no answer, and sends the record again with success and with a higher epoch.

    The same process writes an equal record with its next producer.
    """
    app = yield from started(name="")
    yield numbered(app, 1, sequence=5)
    yield app.produced(is_known=False)
    yield numbered(app, 1, epoch=1)
    yield app.produced()
    yield from next_producer(app, 1)


def equal_record_of_a_later_producer_after_many_batches() -> History:
    """The next producer writes an equal record after more batches than the diagnosis remembers."""
    app = yield from started(name="")
    for is_known in (False, True):
        yield numbered(app, 1)
        yield app.produced(is_known)
    for number in range(20_000):
        yield numbered(app, 2, sequence=number + 1)
        yield app.produced()
    yield from next_producer(app, 1)


def equal_record_of_a_later_producer_beside_a_moved_partition() -> History:
    """A Produce has an error for a partition that has another leader, and success for the other."""
    app = yield from started(name="")
    yield together(numbered(app, 1), numbered(app, 2, topic="audit"))
    yield from results(app.produced(), is_known=False)
    yield numbered(app, 1)
    yield app.produced()
    yield from next_producer(app, 2, topic="audit")


def next_producer(app: Application, record: int, topic: str = OUTPUT) -> History:
    app.producer_id, app.connections = 8, (app.reader, next(IDS))
    yield s.SeenOpened(**app.at(app.writer))
    yield app.init()
    yield numbered(app, record, topic=topic)
    yield app.produced()


def reused_sequence(answer: str, *, is_aborted_again: bool = False) -> History:
    """An application reuses a number after an abort. Its outputs are wrong for another reason.

    answer: the answer to the first batch with this number.
    """
    app = yield from started()
    yield from aborted_batch(app, is_answered=answer == "lost")
    first = app.number
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    if answer == "a late error":
        refused = replace(app.produced(is_known=False), has_error=True)
        yield replace(refused, number=first)
    if is_aborted_again:
        yield from app.end(is_commit=False)
        yield from app.fetch(6, offset=0)
        yield numbered(app, 3, 4, 5, sequence=3)
        yield app.produced()
    yield numbered(app, 0, 1, 2, sequence=6)
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, doubled=1)


def reused_sequence_of_a_batch_that_was_not_written() -> History:
    return reused_sequence("none")


def reused_sequence_of_a_batch_that_is_refused_late() -> History:
    return reused_sequence("a late error")


def reused_sequence_in_a_transaction_that_is_aborted() -> History:
    return reused_sequence("lost", is_aborted_again=True)


def reused_sequence_in_a_transaction_of_a_killed_process(*, name: str) -> History:
    """name: the transactional id of the next process, which commits its own transaction."""
    app = yield from started()
    yield from aborted_batch(app)
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield from app.stop()
    again = yield from started(name=name, producer_id=8)
    yield from again.run(1)
    yield s.SeenVerdict(at_s=500, doubled=1)


def reused_sequence_in_a_transaction_without_commit(*, is_refused: bool) -> History:
    """The commit of the second transaction is refused, or does not arrive, and it is aborted.

    The outputs are wrong for another reason.
    """
    app = yield from started()
    yield from aborted_batch(app)
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield next(app.end())
    if is_refused:
        yield s.SeenEndRefused(**app.at(app.writer), transactional_id=app.name)
        yield from app.end(is_commit=False)
    else:
        yield app.init()
    yield s.SeenVerdict(at_s=500, doubled=1)


def reused_sequence_in_a_transaction_whose_commit_is_refused() -> History:
    return reused_sequence_in_a_transaction_without_commit(is_refused=True)


def reused_sequence_in_a_transaction_whose_commit_does_not_arrive() -> History:
    return reused_sequence_in_a_transaction_without_commit(is_refused=False)


def reused_sequence_in_a_transaction_that_a_new_id_does_not_end() -> History:
    return reused_sequence_in_a_transaction_of_a_killed_process(name="billing-2")


def reused_sequence_in_a_transaction_that_the_next_process_aborts() -> History:
    return reused_sequence_in_a_transaction_of_a_killed_process(name="billing-1")


def the_same_records_encoded_again() -> History:
    app = yield from started()
    yield from app.fetch(3)
    yield numbered(app, 0, 1, 2)
    yield app.produced(is_known=False)
    again = numbered(app, 0, 1, 2)
    yield replace(again, batches=(replace(again.batches[0], crc=5),))
    yield app.produced()
    yield app.send_offsets(3)
    yield from app.end()


def the_same_records_encoded_again_after_a_refusal() -> History:
    """The first attempt is slow, and its success comes after that of the last one."""
    app = yield from started()
    yield from app.fetch(3)
    slow = numbered(app, 0, 1, 2)
    yield slow
    yield numbered(app, 0, 1, 2)
    yield replace(app.produced(), has_error=True, is_refused=True)
    again = numbered(app, 0, 1, 2)
    yield replace(again, batches=(replace(again.batches[0], crc=5),))
    yield app.produced()
    yield app.send_offsets(3)
    yield from app.end()
    yield replace(app.produced(), number=slow.number)
    yield s.SeenVerdict(at_s=500, doubled=1)


def records_that_are_not_known() -> History:
    app = yield from started(name="")
    for crc in (1, 2):
        sent = numbered(app, 0, 1, 2)
        yield replace(sent, batches=(replace(sent.batches[0], crc=crc, records=()),))


def aborted_before_the_produce_is_answered() -> History:
    app = yield from started()
    for _ in range(2):
        yield from app.fetch(3)
        yield numbered(app, 0, 1, 2)
        yield from app.end(is_commit=False)
    yield from app.run(3)


def slow_commit_that_is_asked_for_again() -> History:
    app = yield from started()
    yield from app.unanswered_commit()
    yield from app.end()
    app.offset = 1
    yield from app.run(3)


def new_id_that_begins_at_the_committed_offsets() -> History:
    app = yield from started()
    yield from app.unanswered_commit()
    app.name, app.producer_id = "billing-2", 8
    yield app.init()
    yield from app.join()
    yield app.produce(0)


def same_id_that_begins_at_the_committed_offsets() -> History:
    app = yield from started()
    yield from app.unanswered_commit()
    yield app.init()
    yield from app.join()
    yield app.produce(0)


def new_id_after_a_commit_that_was_refused() -> History:
    app = yield from started()
    yield from app.unanswered_commit()
    yield s.SeenEndRefused(**app.at(app.writer), transactional_id=app.name)
    app.name, app.producer_id = "billing-2", 8
    yield app.init()
    yield app.produce(0)


def equal_records_of_two_producers_while_a_commit_is_slow() -> History:
    """An application writes equal records with two transactional ids, one for each input partition.

    The commit of one id has no answer yet when the other id writes such a record.
    """
    one = yield from started(name="billing-0")
    two = replace(one, name="billing-1", producer_id=8)
    yield two.init()
    yield two.produce(0)
    yield two.produced()
    yield from two.end()
    yield one.produce(0)
    yield one.produced()
    yield next(one.end())
    yield two.produce(0)


def random_id_after_a_restart_that_reads_its_own_output() -> History:
    """An application without a group reads its positions from its own output, and has a new id.

    It writes a record again whose commit had no answer before the restart.
    """
    app = yield from started()
    yield app.produce(0)
    yield app.produced()
    yield next(app.end())
    yield from app.stop()
    again = replace(app, name="billing-77", producer_id=9, connections=(next(IDS), next(IDS)))
    for connection in again.connections:
        yield s.SeenOpened(**again.at(connection))
    yield again.init()
    yield again.produce(0)


def transactions_that_wait_for_brokers() -> History:
    """Transactions stay open beyond their timeout, because a Produce waits for its broker."""
    app = yield from started(timeout_ms=10_000)
    for _ in range(3):
        yield from app.fetch(3)
        yield app.produce(app.offset)
        for _ in range(4):
            app.at_s += 3.0
            yield app.sign("Heartbeat")
            yield s.SeenHeartbeat(**app.at(app.reader), group="billing")
        yield s.SeenWait(**app.at(app.writer), api="Produce", waited_s=12.0)
        yield app.produced()
        yield app.send_offsets(app.offset + 1)
        yield from app.end()
        app.offset += 1


def transactions_that_wait_for_brokers_many_times() -> History:
    app = yield from started(timeout_ms=10_000)
    for _ in range(3):
        for _ in range(5):
            yield from app.fetch(3)
            yield app.produce(app.offset)
            app.at_s += 3.0
            yield s.SeenWait(**app.at(app.writer), api="Produce", waited_s=3.0)
            yield app.produced()
            app.offset += 1
        yield app.send_offsets(app.offset)
        yield from app.end()


def transactions_whose_waits_overlap() -> History:
    """Transactions wait for two answers at the same time, and the longer wait is reported last."""
    app = yield from started(timeout_ms=10_000)
    for _ in range(3):
        yield from app.fetch(3)
        yield app.produce(app.offset)
        app.at_s += 14.0
        yield s.SeenWait(**app.at(app.reader), api="Heartbeat", waited_s=2.5)
        yield s.SeenWait(**app.at(app.writer), api="Produce", waited_s=14.0)
        yield app.produced()
        yield app.send_offsets(app.offset + 1)
        yield from app.end()
        app.offset += 1


def id_that_is_taken_over_when_the_coordinator_stood_still() -> History:
    """Two instances initialize one id by turns, while the other waits for a slow coordinator."""
    one = yield from started(name="billing-0")
    two = replace(one, instance="instance-2", connections=(next(IDS), next(IDS)))
    yield from two.start()
    for each, other in ((one, two), (two, one)) * 2:
        for _ in range(4):
            one.at_s = two.at_s = max(one.at_s, two.at_s) + 3.0
            yield other.sign()
        yield s.SeenWait(**other.at(other.reader), api="Heartbeat", waited_s=12.0)
        yield each.init()
        yield other.produce(other.offset)  # this produce is refused because the producer is fenced


def zombie_that_writes_while_its_successor_commits() -> History:
    app = yield from started()
    zombie = replace(app, instance="instance-9", connections=(next(IDS), next(IDS)))
    yield from app.fetch(3)
    yield app.produce(0)
    yield app.produced()
    yield app.send_offsets(1)
    yield numbered(zombie, 7)
    yield from app.end()
    yield replace(zombie.produced(is_known=False), has_error=True)


RIGHT = (
    sent_again_while_the_first_connection_is_open, other_records_after_a_refusal,
    other_records_after_an_abort, equal_record_of_a_later_producer_after_a_lost_answer,
    equal_record_of_a_later_producer_after_a_slow_answer,
    equal_record_of_a_later_producer_after_a_success,
    equal_record_of_a_later_producer_after_many_batches,
    equal_record_of_a_later_producer_beside_a_moved_partition,
    reused_sequence_in_a_transaction_whose_commit_is_refused,
    reused_sequence_in_a_transaction_whose_commit_does_not_arrive,
    other_records_after_a_refusal_beside_a_producer_without_answers,
    reused_sequence_of_a_batch_that_was_not_written,
    reused_sequence_of_a_batch_that_is_refused_late,
    reused_sequence_in_a_transaction_that_is_aborted,
    reused_sequence_in_a_transaction_that_a_new_id_does_not_end,
    reused_sequence_in_a_transaction_that_the_next_process_aborts,
    the_same_records_encoded_again, the_same_records_encoded_again_after_a_refusal,
    records_that_are_not_known,
    aborted_before_the_produce_is_answered, zombie_that_writes_while_its_successor_commits,
    slow_commit_that_is_asked_for_again,
    equal_records_of_two_producers_while_a_commit_is_slow, transactions_that_wait_for_brokers,
    transactions_that_wait_for_brokers_many_times, transactions_whose_waits_overlap,
    id_that_is_taken_over_when_the_coordinator_stood_still,
    random_id_after_a_restart_that_reads_its_own_output,
    new_id_that_begins_at_the_committed_offsets, same_id_that_begins_at_the_committed_offsets,
    new_id_after_a_commit_that_was_refused,
)  # fmt: skip


@pytest.mark.parametrize("history", RIGHT, ids=lambda each: each.__name__)
def test_diagnosis_of_correct_resends_slow_commits_and_waits_gives_no_finding(history) -> None:
    diagnosis = Diagnosis()
    for seen in history():
        diagnosis.see(seen)
    assert [line for found in diagnosis.findings for line in found.lines()] == []


def test_diagnosis_reports_a_sequence_reused_after_an_abort_if_outputs_are_lost() -> None:
    diagnosis = Diagnosis()
    for seen in other_records_after_an_abort(lost=1):
        diagnosis.see(seen)
    assert diagnosis.names == {"same-sequence-other-bytes"}


def test_diagnosis_findings_are_in_the_order_of_the_catalogue() -> None:
    """The finding about offsets is first. Idempotence alone would not be a remedy."""
    diagnosis, app = Diagnosis(), Application(name="", producer_id=-1)
    for seen in app.start():
        diagnosis.see(seen)
    for n in range(4):
        for seen in app.copy(101.3 + n * n):
            diagnosis.see(seen)
    diagnosis.see(s.SeenVerdict(at_s=500, doubled=3, inputs=frozenset({INPUT})))
    first, second = diagnosis.findings
    assert (first.kind.name, second.kind.name) == ("offsets-outside-transaction", "no-idempotence")
    assert "idempotence alone does not mend this" in first.evidence
