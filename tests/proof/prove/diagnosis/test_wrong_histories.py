"""Test that each mistake in an otherwise correct application gets only its own finding."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from oncelog.proof.prove.diagnosis import seen as s
from oncelog.proof.prove.diagnosis.catalogue import CATALOGUE
from oncelog.proof.prove.diagnosis.diagnosis import Diagnosis

from .histories import (
    GROUP,
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
INPUTS = frozenset({INPUT})
UUID = "3f2b8a1c-9d4e-4f7a-8c21-0123456789ab"


def offsets_outside() -> History:
    app = yield from started()
    for times in (1, 3, 2, 1):
        for _ in range(times):
            yield from app.transaction(with_offsets=False)
        yield app.commit(app.offset)


def auto_commit_beside_transactions() -> History:
    app = yield from started(step_s=0.001)
    for _ in range(6):
        began_s = app.at_s
        yield from app.run(7)
        app.at_s = began_s + 5.0
        yield app.commit(app.offset)


def auto_commit_of_a_plain_producer() -> History:
    app = yield from started(name="", step_s=0.001)
    for _ in range(6):
        yield from app.copy(app.at_s + 1.0)


def commit_before_output() -> History:
    app = yield from started(name="")
    for _ in range(8):
        yield from app.fetch(1)
        yield app.commit(app.offset + 1)
        yield app.produce(app.offset)
        app.offset += 1


def read_uncommitted() -> History:
    app = yield from started(is_read_committed=False)
    yield from app.run()


def no_generation() -> History:
    app = yield from started(is_fenced=False)
    yield from app.run()


def refused_offsets() -> History:
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch()
    yield app.produce(app.offset)
    yield app.produced()
    yield app.send_offsets(app.offset + 1)
    yield app.refused()
    yield from app.end()


def refused_offsets_of_one_group() -> History:
    """A transaction has offsets of two groups, and only the second TxnOffsetCommit succeeds."""
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch()
    yield app.produce(app.offset)
    yield app.produced()
    yield app.send_offsets(app.offset + 1)
    yield app.refused()
    yield replace(app.send_offsets(app.offset + 1), group="shipping")
    yield from app.end()


def no_generation_though_the_id_ends_in_a_number() -> History:
    """Each id ends in the number of an instance, so a partition's new owner uses another id."""
    one = Application(name="billing-0", is_fenced=False)
    two = replace(one, instance="instance-2", name="billing-1", connections=(next(IDS), next(IDS)))
    yield from one.start()
    yield from one.run()
    yield from two.start()
    yield from two.run()


def unstable_fetch() -> History:
    app = yield from started(is_stable=False)
    yield from app.run()


def shared_id() -> History:
    one = Application(name="billing")
    two = replace(one, instance="instance-2", partition=1, connections=(next(IDS), next(IDS)))
    yield from one.start()
    yield from one.run(2)
    yield from two.start()
    for _ in range(3):
        one.at_s = two.at_s = max(one.at_s, two.at_s)
        yield from one.fetch()
        yield one.produce(one.offset)  # is fenced
        yield one.init()
        yield from two.fetch()
        yield two.produce(two.offset)  # is fenced
        yield two.init()


def shared_id_of_version_1() -> History:
    """Two instances use one id with V1 transactions, and the fenced one sends no Produce.

    Its AddPartitionsToTxn is refused before.
    """
    one = Application(name="billing")
    two = replace(one, instance="instance-2", partition=1, connections=(next(IDS), next(IDS)))
    yield from one.start()
    yield from one.run(2)
    yield from two.start()
    for _ in range(3):
        for each in (one, two):
            one.at_s = two.at_s = max(one.at_s, two.at_s)
            yield from each.fetch()
            yield s.SeenAdd(**each.at(each.writer), transactional_id="billing")
            yield each.init()


def random_ids(*, is_bumped: bool = False) -> History:
    offset = 0
    for life in range(2):
        name = f"billing-{UUID[:-1]}{life}"
        app = yield from started(name=name, is_fenced=False, at_s=100.0 + life * 20, offset=offset)
        if is_bumped:
            yield app.init()
        yield from app.run(4)
        yield from app.stop()
        offset = app.offset


def random_ids_with_a_higher_epoch_after_an_error() -> History:
    """The client sends InitProducerId again by itself (KIP-360)."""
    return random_ids(is_bumped=True)


def random_ids_of_two_producers() -> History:
    """Each start has two random ids, and the client raises the epoch of the second one."""
    for each in random_ids(is_bumped=True):
        if isinstance(each, s.SeenInit):
            yield replace(each, transactional_id=f"audit-{each.transactional_id}")
        yield each


def ids_of_the_process() -> History:
    for life in range(3):
        app = yield from started(name=f"billing-pid-{4211 + life * 37}", at_s=100.0 + life * 20)
        for _ in range(3):
            yield from app.transaction(with_offsets=False)
        yield from app.stop()


def acks_1() -> History:
    app = yield from started(name="", acks=1)
    for offset in range(5):
        yield app.produce(offset)
        yield app.commit(offset + 1)


def no_idempotence() -> History:
    app = yield from started(name="", producer_id=-1)
    for offset in range(5):
        yield app.produce(offset)


def plain_producer_beside() -> History:
    app = yield from started()
    for _ in range(5):
        yield from app.transaction()
        yield app.produce(app.offset + 1_000, name="", producer_id=8)


def plain_output_and_offsets_in_transactions() -> History:
    app = yield from started()
    for _ in range(6):
        yield from app.fetch()
        yield app.produce(app.offset, name="", producer_id=8)
        yield app.send_offsets(app.offset + 3)
        yield from app.end()
        app.offset += 3


def written_before_init_transactions() -> History:
    app = Application()
    yield app.produce(5_000, name="", producer_id=8)
    yield app.produce(5_001, name="", producer_id=8)
    yield from app.start()
    yield from app.run()


def _sends_again_by_another(is_answered: bool) -> History:
    app = yield from started(name="")
    yield numbered(app, 1)
    if is_answered:
        yield app.produced(is_known=False)
    else:
        yield s.SeenClosed(**app.at(app.writer))
    app.producer_id, app.connections = 8, (app.reader, next(IDS))
    yield s.SeenOpened(**app.at(app.writer))
    yield app.init()
    yield numbered(app, 1)


def fresh_producer_after_an_error() -> History:
    return _sends_again_by_another(is_answered=True)


def fresh_producer_after_a_lost_answer() -> History:
    return _sends_again_by_another(is_answered=False)


def open_longer_than_its_timeout() -> History:
    app = yield from started(timeout_ms=3_000)
    for _ in range(3):
        yield from app.fetch()
        yield app.produce(app.offset)
        for _ in range(10):
            app.at_s += 0.5
            yield app.sign()
        yield from app.end(is_commit=False)
        yield from app.join()


def open_longer_than_a_session_without_heartbeat() -> History:
    app = yield from started()
    for _ in range(3):
        yield from app.fetch()
        yield app.produce(app.offset)
        for _ in range(48):
            app.at_s += 1
            yield app.sign("Produce")
        yield from app.end(is_commit=False)
        yield from app.join()


def open_without_heartbeat_beside_short_ones() -> History:
    app = yield from started()
    for _ in range(3):
        yield app.produce(app.offset)
        for _ in range(48):
            app.at_s += 1
            yield app.sign("Produce")
            yield app.produce(app.offset, name="another")
            yield s.SeenEndTxn(**app.at(app.writer), transactional_id="another", is_commit=True)
        yield from app.end(is_commit=False)
        yield from app.join()


def abort_without_seek() -> History:
    app = yield from started()
    yield from app.run(3)
    yield from app.transaction(is_commit=False)
    app.offset += 3
    yield from app.run(3)


def abort_before_offsets_without_seek() -> History:
    app = yield from started()
    yield from app.run(3)
    yield from app.transaction(is_commit=False, with_offsets=False)
    app.offset += 3
    yield from app.run(3)


def abort_without_seek_of_one_partition() -> History:
    """An application aborts without a seek, and first continues with another partition."""
    app = yield from started()
    other = replace(app, partition=1, offset=40)
    yield from app.run(2)
    yield from app.transaction(is_commit=False)
    other.at_s = app.at_s
    yield from other.run(2)
    app.at_s, app.offset = other.at_s, app.offset + 3
    yield from app.run(2)


def abort_with_a_seek_of_one_partition_only() -> History:
    """An application aborts outputs of two partitions, and seeks back in one of them."""
    app = yield from started()
    other = replace(app, partition=1, offset=40)
    yield from other.fetch(3)
    app.at_s = other.at_s
    yield from app.fetch(3)
    yield app.produce(app.offset)
    yield app.produced()
    for offset in range(40, 43):
        yield other.produce(offset)
    yield from app.end(is_commit=False)
    app.at_s, other.offset = other.at_s + 1, 43
    yield from app.run(1)  # from the same offset
    other.at_s = app.at_s
    yield from other.run(2)
    lost = other.inputs(range(40, 43))
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=lost)


def pieces(app: Application, first: int, *, is_commit: bool = True) -> History:
    """Run a transaction of three records without a Fetch, and commit or abort it."""
    for offset in range(first, first + 3):
        yield app.produce(offset)
    if is_commit:
        yield app.send_offsets(first + 3)
    yield from app.end(is_commit)


def abort_of_what_was_prefetched() -> History:
    """An application that has fetched all records aborts a transaction of three of them.

    It continues with the next records, without a seek back to the three.
    """
    app = yield from started()
    yield from app.fetch(30)
    yield from pieces(app, 0)
    yield s.SeenFetch(**app.at(app.reader), positions=(((INPUT, 0), 30),))
    yield from pieces(app, 3, is_commit=False)
    for first in range(6, 30, 3):
        yield from pieces(app, first)


def aborts_with_a_reader_far_ahead() -> History:
    app = yield from started()
    yield from app.fetch(30)
    for first in range(0, 150, 15):
        for each in range(first, first + 12, 3):
            yield from pieces(app, each)
        yield from pieces(app, first + 12, is_commit=False)
        app.offset = first + 30
        yield from app.fetch(15)


def aborts_in_two_partitions() -> History:
    """An application aborts in two partitions without a seek, and continues in the first one.

    The second partition gets no more records.
    """
    app = yield from started()
    yield from app.run(2)
    yield from app.transaction(is_commit=False)
    other = replace(app, partition=1, offset=40)
    yield from other.transaction(is_commit=False)
    app.at_s, app.offset = other.at_s, app.offset + 3
    yield from app.run(5)


def aborted_before_anything_was_sent() -> History:
    """An application drops inputs whose records never left the client.

    Only the abort of an earlier transaction is seen. A transaction without partitions ends without
    EndTxn.
    """
    app = yield from started()
    yield from app.run(3)
    yield from app.end(is_commit=False)  # of another transaction, which had begun
    yield from _left_out(app)


def left_out_without_an_abort() -> History:
    app = yield from started()
    yield from app.run(3)
    yield from _left_out(app)


def _left_out(app: Application) -> History:
    first = app.offset
    yield from app.fetch(4)
    app.offset += 4
    yield from app.run(3)
    lost = app.inputs(range(first, first + 4))
    yield s.SeenVerdict(at_s=500, lost=4, lost_inputs=lost)


def chunk_that_commits_the_whole_poll() -> History:
    """Each poll is written in two transactions, and the first one commits the end of the poll.

    An earlier abort of the application is not the cause of the loss.
    """
    app = yield from started()
    yield from app.run(2)
    yield from app.end(is_commit=False)
    for is_whole in (True, True, False):
        yield from app.fetch(6)
        first, app.offset = app.offset, app.offset + 6
        for chunk in (first, first + 3)[: 1 + is_whole]:
            for offset in range(chunk, chunk + 3):
                yield app.produce(offset)
                yield app.produced()
            yield app.send_offsets(app.offset)
            yield from app.end()
    lost = app.inputs(range(first + 3, first + 6))
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=lost)


def committed_after_a_refused_produce(
    *, is_repeated: bool = False, is_asking: bool = False
) -> History:
    """The application does not wait for its deliveries. It has aborted another transaction."""
    app = yield from started()
    yield from app.run(2)
    yield from app.end(is_commit=False)
    yield from app.fetch(4)
    first, app.offset = app.offset, app.offset + 4
    if is_asking:
        place = ((INPUT, app.partition), first)
        asked = app.at(app.reader)
        yield s.SeenOffsetFetch(**asked, group=GROUP, is_stable=True, offsets=(place,))
    yield app.produce(*range(first, first + 4))
    yield replace(app.produced(), has_error=True, is_refused=True)
    if is_repeated:
        yield app.produce(*range(first, first + 4))
        yield app.produced()
    yield app.send_offsets(app.offset)
    yield from app.end()
    lost = app.inputs(range(first, first + 4))
    yield s.SeenVerdict(at_s=500, lost=4, lost_inputs=lost)


def committed_after_a_refused_produce_and_an_offset_fetch() -> History:
    """The OffsetFetch does not move the consumer, as in aiokafka after `seek_to_committed`."""
    yield from committed_after_a_refused_produce(is_asking=True)


def abort_of_refused_outputs_without_seek() -> History:
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch(3)
    first, app.offset = app.offset, app.offset + 3
    for offset in range(first, first + 3):
        yield app.produce(offset)
        yield replace(app.produced(), has_error=True, is_refused=True)
    yield from app.end(is_commit=False)
    yield from app.run(2)
    lost = app.inputs(range(first, first + 3))
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=lost)


def outputs_always_in_the_transaction_after_their_offsets() -> History:
    """The instance fails between the two, and leaves the outputs of one transaction out."""
    app = yield from started()
    for cycle in range(8):
        yield from app.fetch(3)
        if cycle not in (0, 5):
            for offset in range(app.offset - 3, app.offset):
                yield app.produce(offset)
                yield app.produced()
        yield app.send_offsets(app.offset + 3)
        yield from app.end()
        app.offset += 3
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(12, 15)))


def refused_outputs_with_copies_in_another_topic() -> History:
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch(3)
    lost = range(app.offset, app.offset + 3)
    sent = app.produce(*lost)
    yield sent
    yield app.produce(*lost, topic="audit")
    refused = replace(app.produced(), has_error=True, is_refused=True)
    yield replace(refused, number=sent.number)
    yield app.produced()
    yield app.send_offsets(app.offset + 3)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(lost))


def committed_after_a_refusal_for_one_topic() -> History:
    """A Produce has batches for two topics, and only that of the output is refused."""
    app = yield from started()
    yield from app.run(2)
    yield from app.fetch(3)
    lost = range(app.offset, app.offset + 3)
    yield together(app.produce(*lost), app.produce(*lost, topic="audit"))
    yield from results(app.produced(), is_refused=True)
    yield app.send_offsets(app.offset + 3)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(lost))


def unanswered_commit_taken_as_committed() -> History:
    """EndTxn did not arrive, InitProducerId aborts, and the application continues."""
    app = yield from started()
    yield from app.run(3)
    yield from app.fetch(3)
    lost = range(app.offset, app.offset + 3)
    for offset in lost:
        yield app.produce(offset)
        yield app.produced()
    yield app.send_offsets(app.offset + 3)
    yield next(app.end())
    yield app.init()
    app.offset += 3
    yield from app.run(3)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(lost))


def reused_sequence_after_an_abort(*, is_refused_first: bool) -> History:
    """Two partitions get other records with old numbers. The first batch of one is refused."""
    app = yield from started()

    def batch(partition: int, *offsets: int) -> s.SeenProduce:
        sent = numbered(app, *offsets)
        return replace(sent, batches=(replace(sent.batches[0], partition=(OUTPUT, partition)),))

    yield from app.fetch(9)
    for partition in (0, 1):
        yield batch(partition, 0, 1, 2)
        yield app.produced(is_known=False)
    yield from app.end(is_commit=False)
    yield from app.fetch(6, offset=0)
    refused, other = batch(0, 3, 4, 5), batch(1, 3, 4, 5)
    yield from (refused,) if is_refused_first else (refused, other)
    answer = replace(app.produced(is_known=False), has_error=True)
    yield replace(answer, number=refused.number)
    if is_refused_first:
        yield batch(0, 3, 4, 5)
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3, 6)))


def reused_sequence_that_is_refused_once() -> History:
    return reused_sequence_after_an_abort(is_refused_first=True)


def reused_sequence_beside_a_refused_one() -> History:
    return reused_sequence_after_an_abort(is_refused_first=False)


def reused_sequence_of_a_batch_that_is_answered_late() -> History:
    """An application aborts, since a Produce gets no answer in time. A broker writes its batch."""
    app = yield from started()
    yield from aborted_batch(app, is_answered=False)
    slow = app.number
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield replace(app.produced(is_known=False), number=slow)
    yield app.send_offsets(6)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3, 6)))


def reused_sequence_under_load(*, is_retried: bool) -> History:
    """A broker has written a batch before an abort, and drops the next one.

    is_retried: the client sends the batch again before the abort, and gets an error. Otherwise the
    records of the dropped batch are not decoded, as under load.
    """
    app = yield from started()
    yield from app.fetch(6)
    yield numbered(app, 0, 1, 2)
    yield app.produced(is_known=False)
    if is_retried:
        yield numbered(app, 0, 1, 2)
        yield replace(app.produced(is_known=False), has_error=True)
    yield from app.end(is_commit=False)
    yield from app.fetch(6, offset=0)
    dropped = numbered(app, 3, 4, 5)
    if not is_retried:
        dropped = replace(dropped, batches=(replace(dropped.batches[0], records=()),))
    yield dropped
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3, 6)))


def reused_sequence_of_a_batch_that_is_refused_when_it_is_repeated() -> History:
    return reused_sequence_under_load(is_retried=True)


def reused_sequence_of_a_batch_that_is_not_decoded() -> History:
    return reused_sequence_under_load(is_retried=False)


def reused_sequence_beside_an_error_of_another_topic() -> History:
    """A Produce has batches for two topics, and only that of the output has an error."""
    app = yield from started(name="")
    yield together(numbered(app, 1), numbered(app, 2, topic="audit"))
    yield from results(app.produced(is_known=False))
    yield numbered(app, 3, topic="audit")


def reused_sequence_of_a_batch_whose_success_comes_last() -> History:
    """A broker has written the first batch with the number. Its answer is the last one.

    Meanwhile a retry of this batch was refused, and two transactions were aborted.
    """
    app = yield from started()
    yield from app.fetch(6)
    slow = numbered(app, 0, 1, 2)
    yield slow
    yield replace(numbered(app, 0, 1, 2), connection=app.reader)
    refused = replace(app.produced(is_known=False), connection=app.reader, has_error=True)
    yield refused
    yield from app.end(is_commit=False)
    yield from app.fetch(6, offset=0)
    yield numbered(app, 0, 1)
    yield from app.end(is_commit=False)
    yield from app.fetch(6, offset=0)
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()
    yield replace(app.produced(is_known=False), number=slow.number)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3, 6)))


def reused_sequence_for_the_same_records_after_an_abort() -> History:
    """A broker takes the batch for the one of the aborted transaction, so its records are lost."""
    app = yield from started()
    yield from aborted_batch(app)
    again = numbered(app, 0, 1, 2)
    yield replace(again, batches=(replace(again.batches[0], crc=again.batches[0].crc + 1),))
    yield app.produced()
    yield app.send_offsets(3)
    yield from app.end()
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3)))


def reused_sequence_after_two_aborts() -> History:
    """A broker takes a batch for the one with the same number before two aborts."""
    app = yield from started()
    yield from aborted_batch(app)
    for is_commit in (False, True):
        yield from app.fetch(6, offset=0)
        yield numbered(app, 3, 4, 5)
        yield app.produced()
        if is_commit:
            yield app.send_offsets(6)
        yield from app.end(is_commit)
    yield s.SeenVerdict(at_s=500, lost=3, lost_inputs=app.inputs(range(3, 6)))


def same_id_after_a_slow_commit_beside_a_reader(offsets_in: str) -> History:
    """The reader reads the output. offsets_in: the request that commits its offsets, or ""."""
    app = yield from started()

    def read() -> s.SeenFetch:
        return s.SeenFetch(**app.at(app.reader), positions=(((OUTPUT, 0), 0),))

    if offsets_in == "OffsetCommit":
        yield s.SeenJoin(**app.at(app.reader), group="dashboard")
    yield read()
    yield from app.run(2)
    yield read()
    yield from app.fetch(3)
    records = range(app.offset, app.offset + 3)
    yield app.produce(*records)
    yield app.produced()
    offsets, own = app.send_offsets(app.offset + 3), (((OUTPUT, 0), 3),)
    is_in_transaction = offsets_in == "TxnOffsetCommit"
    yield replace(offsets, offsets=(*offsets.offsets, *(own if is_in_transaction else ())))
    if offsets_in == "OffsetCommit":
        yield replace(app.commit(3), group="dashboard", offsets=own)
    yield next(app.end())
    yield read()
    yield app.init()
    if offsets_in:
        yield read()
    yield app.produce(*records)
    yield app.produced()
    yield app.send_offsets(app.offset + 3)
    yield from app.end()


def same_id_after_a_slow_commit_beside_a_reader_of_its_output() -> History:
    return same_id_after_a_slow_commit_beside_a_reader("")


def same_id_after_a_slow_commit_of_an_application_that_reads_its_output() -> History:
    return same_id_after_a_slow_commit_beside_a_reader("TxnOffsetCommit")


def same_id_after_a_slow_commit_beside_a_consumer_of_its_output() -> History:
    return same_id_after_a_slow_commit_beside_a_reader("OffsetCommit")


def committed_before_the_produce_is_answered() -> History:
    app = yield from started()
    yield from app.fetch(3)
    yield numbered(app, 0, 1, 2)
    yield app.send_offsets(3)
    yield from app.end()
    yield app.produced()


def same_sequence_number_with_other_records() -> History:
    app = yield from started()
    yield from app.fetch(6)
    yield numbered(app, 0, 1, 2)
    yield app.produced(is_known=False)
    yield numbered(app, 3, 4, 5)
    yield app.produced()
    yield app.send_offsets(6)
    yield from app.end()


def new_id_after_a_slow_commit() -> History:
    app = yield from started()
    yield from app.run(2)
    yield from app.unanswered_commit()
    app.name, app.producer_id = "billing-2", 8
    yield app.init()
    yield app.produce(app.offset)


def same_id_after_a_slow_commit() -> History:
    """An application replays a batch from memory by a new producer with the same id."""
    app = yield from started()
    yield from app.run(2)
    yield from app.unanswered_commit()
    yield app.init()
    yield app.produce(app.offset)


def offsets_outside_in_a_short_run() -> History:
    """Of two instances, one commits offsets once, outside of its transactions."""
    app = yield from started()
    other = replace(
        app, instance="instance-2", name="billing-2", connections=(next(IDS), next(IDS))
    )
    yield from other.start()
    yield from other.transaction(with_offsets=False)
    yield from app.transaction(with_offsets=False)
    yield app.commit(app.offset)
    yield s.SeenVerdict(**app.at(0), doubled=3, inputs=INPUTS)


def plain_output_that_is_doubled() -> History:
    app = Application(name="", producer_id=-1)
    yield from app.start()
    for n in range(4):
        yield from app.copy(101.3 + n * n)
    yield s.SeenVerdict(at_s=500, doubled=3, inputs=INPUTS)


def fenced_by_the_timeout() -> History:
    app = Application(timeout_ms=3_000)
    yield from app.start()
    for _ in range(2):
        yield from app.fetch()
        yield app.produce(app.offset)
        for _ in range(5):
            app.at_s += 1
            yield app.sign("Fetch")
        yield app.init()


def auto_commit_between_rebalances() -> History:
    app = Application(name="", step_s=0.001)
    yield from app.start()
    begun_s = app.at_s
    for number in range(6):
        yield from app.copy(begun_s + 5.0 * number)
        app.at_s += 2
        yield from app.join()


def abort_without_seek_and_an_answer_thrown_away() -> History:
    """An application aborts without a seek, and fetches later records twice."""
    app = yield from started()
    yield from app.run(2)
    yield from app.transaction(is_commit=False)
    app.offset += 3
    yield from app.fetch()
    yield from app.run(2)


def auto_commit_between_restarts() -> History:
    """A client commits by a timer, which begins when the client starts.

    Each of its further commits belongs to a rebalance.
    """
    for life in range(3):
        begun_s = 100.0 + 30 * life
        app = yield from started(name="", at_s=begun_s, step_s=0.001, offset=20 * life)
        for after_s, is_revoked in ((2.3, True), (5.0, False), (7.7, True), (8.4, True)):
            yield from app.copy(begun_s + after_s)
            if is_revoked:
                yield from app.join()
        yield from app.stop()


def auto_commit_beside_members_that_die() -> History:
    """A client commits by a timer, and at the beginning of each rebalance.

    The rebalances wait for dead members.
    """
    app = yield from started(name="", at_s=100.0, step_s=0.001)
    for number in range(1, 5):
        yield from app.copy(100.0 + 10 * number)
        yield from app.copy(101.3 + 10.4 * number)
        yield from app.join(waits_s=6.0)


def auto_commit_of_a_busy_client() -> History:
    """The client's commit timer begins some time after its connections.

    Several commits belong to a rebalance, and not to the timer.
    """
    for life in range(3):
        begun_s = 100.0 + 40 * life
        app = yield from started(name="", at_s=begun_s, step_s=0.001, offset=30 * life)
        for after_s in (5.2, 10.2, 11.9, 12.1, 12.2):
            yield from app.copy(begun_s + after_s)
        yield from app.join()
        for after_s in (15.2, 17.0):
            yield from app.copy(begun_s + after_s)
        yield from app.stop()  # killed during the commit


def state_not_rebuilt() -> History:
    offset = 0
    for life in range(2):
        app = yield from started(at_s=100.0 + life * 20, offset=offset)
        yield from app.run(4)
        yield from app.stop()
        offset = app.offset
    yield s.SeenVerdict(at_s=500, wrong_finals=4)


def sink_not_atomic() -> History:
    app = Application(name="", producer_id=-1)
    yield from app.join()
    yield app.commit(9)
    yield s.SeenVerdict(at_s=500, is_sink=True, doubled=2)


def v1_on_brokers_without_a_fence() -> History:
    app = yield from started(version=4)
    yield from app.run()
    yield s.SeenCluster(**app.at(0), has_connection_fence=False)


def min_insync_1() -> History:
    app = yield from started()
    yield from app.run()
    yield s.SeenTopic(**app.at(0), topic=OUTPUT, min_insync_replicas=1, replication_factor=3)


WRONG: list[tuple[object, set[str]]] = [
    (offsets_outside, {"offsets-outside-transaction"}),
    (offsets_outside_in_a_short_run, {"offsets-outside-transaction"}),
    (auto_commit_beside_transactions, {"auto-commit", "offsets-outside-transaction"}),
    (auto_commit_of_a_plain_producer, {"auto-commit"}),
    (commit_before_output, {"commit-before-output"}),
    (read_uncommitted, {"read-uncommitted"}),
    (no_generation, {"no-group-fencing"}),
    (refused_offsets, {"refused-offsets"}),
    (refused_offsets_of_one_group, {"refused-offsets"}),
    (no_generation_though_the_id_ends_in_a_number, {"no-group-fencing"}),
    (unstable_fetch, {"unstable-offset-fetch"}),
    (shared_id, {"shared-transactional-id"}),
    (shared_id_of_version_1, {"shared-transactional-id"}),
    (random_ids, {"random-transactional-id", "no-group-fencing"}),
    (
        random_ids_with_a_higher_epoch_after_an_error,
        {"random-transactional-id", "no-group-fencing"},
    ),
    (random_ids_of_two_producers, {"random-transactional-id", "no-group-fencing"}),
    (ids_of_the_process, {"random-transactional-id"}),
    (acks_1, {"acks-below-all"}),
    (no_idempotence, {"no-idempotence"}),
    (plain_producer_beside, {"plain-producer"}),
    (plain_output_and_offsets_in_transactions, {"plain-producer"}),
    (written_before_init_transactions, {"plain-producer"}),
    (fresh_producer_after_an_error, {"retry-in-fresh-producer"}),
    (fresh_producer_after_a_lost_answer, {"retry-in-fresh-producer"}),
    (open_longer_than_its_timeout, {"transaction-too-long"}),
    (open_longer_than_a_session_without_heartbeat, {"transaction-too-long"}),
    (open_without_heartbeat_beside_short_ones, {"transaction-too-long"}),
    (abort_without_seek, {"abort-without-seek"}),
    (abort_before_offsets_without_seek, {"abort-without-seek"}),
    (abort_without_seek_of_one_partition, {"abort-without-seek"}),
    (abort_with_a_seek_of_one_partition_only, {"abort-without-seek"}),
    (abort_of_what_was_prefetched, {"abort-without-seek"}),
    (aborts_with_a_reader_far_ahead, {"abort-without-seek"}),
    (aborts_in_two_partitions, {"abort-without-seek"}),
    (aborted_before_anything_was_sent, {"abort-without-seek"}),
    (left_out_without_an_abort, {"passed-over"}),
    (chunk_that_commits_the_whole_poll, {"passed-over"}),
    (committed_after_a_refused_produce, {"passed-over"}),
    (committed_after_a_refused_produce_and_an_offset_fetch, {"passed-over"}),
    (abort_of_refused_outputs_without_seek, {"abort-without-seek"}),
    (outputs_always_in_the_transaction_after_their_offsets, {"passed-over"}),
    (refused_outputs_with_copies_in_another_topic, {"passed-over"}),
    (committed_after_a_refusal_for_one_topic, {"passed-over"}),
    (unanswered_commit_taken_as_committed, {"passed-over"}),
    (reused_sequence_that_is_refused_once, {"same-sequence-other-bytes"}),
    (reused_sequence_beside_a_refused_one, {"same-sequence-other-bytes"}),
    (reused_sequence_of_a_batch_that_is_answered_late, {"same-sequence-other-bytes"}),
    (reused_sequence_of_a_batch_that_is_refused_when_it_is_repeated, {"same-sequence-other-bytes"}),
    (reused_sequence_of_a_batch_that_is_not_decoded, {"same-sequence-other-bytes"}),
    (reused_sequence_beside_an_error_of_another_topic, {"same-sequence-other-bytes"}),
    (reused_sequence_of_a_batch_whose_success_comes_last, {"same-sequence-other-bytes"}),
    (reused_sequence_for_the_same_records_after_an_abort, {"same-sequence-other-bytes"}),
    (reused_sequence_after_two_aborts, {"same-sequence-other-bytes"}),
    (same_id_after_a_slow_commit_beside_a_reader_of_its_output, {"retry-in-fresh-producer"}),
    (same_id_after_a_slow_commit_beside_a_consumer_of_its_output, {"retry-in-fresh-producer"}),
    (
        same_id_after_a_slow_commit_of_an_application_that_reads_its_output,
        {"retry-in-fresh-producer"},
    ),
    (committed_before_the_produce_is_answered, {"commit-before-produce"}),
    (same_sequence_number_with_other_records, {"same-sequence-other-bytes"}),
    (new_id_after_a_slow_commit, {"retry-in-fresh-producer"}),
    (same_id_after_a_slow_commit, {"retry-in-fresh-producer"}),
    (plain_output_that_is_doubled, {"offsets-outside-transaction", "no-idempotence"}),
    (fenced_by_the_timeout, {"transaction-too-long"}),
    (auto_commit_between_rebalances, {"auto-commit"}),
    (abort_without_seek_and_an_answer_thrown_away, {"abort-without-seek"}),
    (auto_commit_between_restarts, {"auto-commit"}),
    (auto_commit_of_a_busy_client, {"auto-commit"}),
    (auto_commit_beside_members_that_die, {"auto-commit"}),
    (state_not_rebuilt, {"state-not-rebuilt"}),
    (sink_not_atomic, {"sink-not-atomic"}),
    (v1_on_brokers_without_a_fence, {"v1-late-requests"}),
    (min_insync_1, {"min-insync-1"}),
]


@pytest.mark.parametrize(
    ("history", "names"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_diagnosis_of_each_mistake_names_exactly_that_mistake(history, names) -> None:
    diagnosis = Diagnosis(is_aggregate=history is state_not_rebuilt)
    told = [found for seen in history() for found in diagnosis.see(seen)]
    assert diagnosis.names == names
    assert len(told) == len(diagnosis.findings), "each is told once"
    for found in diagnosis.findings:
        assert found.evidence
        assert any(found.kind.section in line for line in found.lines())


def test_diagnosis_of_a_refused_produce_that_is_sent_again_finds_no_mistake() -> None:
    """The records are lost for another reason."""
    diagnosis = Diagnosis()
    for seen in committed_after_a_refused_produce(is_repeated=True):
        diagnosis.see(seen)
    assert diagnosis.names == set()


def test_diagnosis_of_doubled_output_ignores_commits_of_a_group_of_another_purpose() -> None:
    """Another group commits outside transactions, and the doubled records have another cause."""
    diagnosis, app = Diagnosis(), Application()
    for seen in (*app.start(), *app.run(3)):
        diagnosis.see(seen)
    diagnosis.see(replace(app.commit(1), group="reads-settings"))
    diagnosis.see(s.SeenVerdict(**app.at(0), doubled=3, inputs=INPUTS))
    assert diagnosis.names == set()


@pytest.mark.parametrize("is_beside", [False, True], ids=["of another topic", "by a reader"])
def test_diagnosis_ignores_commits_of_another_topic_or_of_an_instance_that_only_reads(
    is_beside: bool,
) -> None:
    """The offsets are in the transactions, and the lost record has another cause."""
    diagnosis, app = Diagnosis(), Application()
    for seen in app.start():
        diagnosis.see(seen)
    for _ in range(3):
        for seen in app.transaction(with_offsets=False):
            diagnosis.see(seen)
    commit = replace(app.commit(1), group="reads-settings")
    if is_beside:
        diagnosis.see(replace(commit, instance="instance-2"))
    else:
        diagnosis.see(replace(commit, offsets=((("settings", 0), 1),)))
    diagnosis.see(s.SeenVerdict(**app.at(0), lost=1, inputs=INPUTS))
    assert diagnosis.names == set()


def test_diagnosis_ignores_commits_outside_transactions_of_an_instance_without_output() -> None:
    """An instance that only counts the inputs commits their offsets, and writes no output."""
    diagnosis, app = Diagnosis(), Application()
    for seen in app.start():
        diagnosis.see(seen)
    for _ in range(3):
        for seen in app.transaction(with_offsets=False):
            diagnosis.see(seen)
    diagnosis.see(replace(app.commit(1), group="metrics"))
    outputs = frozenset({"another topic"})
    diagnosis.see(s.SeenVerdict(**app.at(0), lost=1, inputs=INPUTS, outputs=outputs))
    assert diagnosis.names == set()


@pytest.mark.parametrize(
    ("wrong", "weight"),
    [
        ({}, "exposed"),
        ({"doubled": 1}, "wrong"),
        ({"lost": 1}, "wrong"),
        ({"is_open": True}, "wrong"),
    ],
)
def test_diagnosis_finding_of_plain_commits_has_level_exposed_only_when_outputs_are_right(
    wrong, weight
) -> None:
    """The positions are in a checkpoint. The group's commits are for monitoring only."""
    diagnosis = Diagnosis()
    for seen in offsets_outside():
        diagnosis.see(seen)
    (live,) = diagnosis.findings
    diagnosis.see(s.SeenVerdict(at_s=500, inputs=INPUTS, **wrong))
    (found,) = diagnosis.findings
    assert (live.kind.weight, found.kind.weight) == ("wrong", weight)
    assert ("monitoring" in found.evidence) is (weight == "exposed")


def test_diagnosis_finding_of_commits_beside_transactional_offsets_keeps_level_wrong() -> None:
    diagnosis = Diagnosis()
    for seen in (*auto_commit_beside_transactions(), s.SeenVerdict(at_s=500, inputs=INPUTS)):
        diagnosis.see(seen)
    assert {found.kind.weight for found in diagnosis.findings} == {"wrong"}


def test_diagnosis_finding_of_every_kind_has_a_wrong_history() -> None:
    assert set().union(*(names for _, names in WRONG)) == set(CATALOGUE)
