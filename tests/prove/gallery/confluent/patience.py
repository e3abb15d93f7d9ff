"""Transactional copiers that meet slow and refused requests, with confluent-kafka.

For each mistake there is a correct copier with the same pattern. Any error that a copier does not
handle ends the process, which is then started again.
"""

# A message of a topic without errors has its key, value and place.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false

import sys
import time
import uuid
from collections.abc import Callable

import surroundings as s
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

SOON_S, SOME_S = 1.5, 4.0
TIMED_OUT = (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.REQUEST_TIMED_OUT)
REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.MSG_SIZE_TOO_LARGE,
           KafkaError.INVALID_RECORD, KafkaError.POLICY_VIOLATION)  # fmt: skip


def _write(writer, batch, on_delivery: Callable | None = None) -> None:
    for message in batch:
        _write_one(writer, message, on_delivery)


def _write_one(writer, message, on_delivery: Callable | None = None) -> None:
    more = {} if on_delivery is None else {"on_delivery": on_delivery}
    writer.produce(s.OUT, key=message.key(), value=message.value(), **more)


def _offsets(writer, batch) -> None:
    writer.send_offsets_to_transaction(s.next_offsets(batch), s.membership, 30)


def _commit(writer, wait_s: float = 30) -> None:
    while True:
        try:
            return writer.commit_transaction(wait_s)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def new_id_after_a_slow_commit() -> None:
    """Count a commit as failed after 1.5 s, and repeat the batch with a new producer."""
    reader, writer = s.consumer(), s.transactional(f"copy-{uuid.uuid4()}")
    for batch in s.batches(reader):
        while True:
            try:
                writer.begin_transaction()
                _write(writer, batch)
                _offsets(writer, batch)
                writer.commit_transaction(SOON_S)
                break
            except KafkaException as problem:
                if problem.args[0].code() not in TIMED_OUT:
                    s.fail(problem)
                print("the commit has failed, so with a new producer:", problem, flush=True)
                writer = s.transactional(f"copy-{uuid.uuid4()}")


def patient_commit() -> None:
    """Repeat the call for a commit that takes more than 1.5 s, which is the same commit."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            _write(writer, batch)
            _offsets(writer, batch)
            _commit(writer, SOON_S)
        except KafkaException as problem:
            s.fail(problem)


def resend_after_four_seconds() -> None:
    """Produce records again that are not delivered after 4 s, with the same producer."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        delivered = set[bytes]()
        try:
            writer.begin_transaction()
            _write(writer, batch, lambda error, sent, done=delivered: done.add(sent.key()))
            while writer.flush(SOME_S):
                late = [message for message in batch if message.key() not in delivered]
                print(f"{len(late)} are not delivered, so once more", flush=True)
                _write(writer, late, lambda error, sent, done=delivered: done.add(sent.key()))
            _offsets(writer, batch)
            _commit(writer)
        except KafkaException as problem:
            s.fail(problem)


def patient_delivery() -> None:
    """Wait for records that are not delivered after 4 s."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            _write(writer, batch)
            while late := writer.flush(SOME_S):
                print(f"{late} are not delivered yet", flush=True)
            _offsets(writer, batch)
            _commit(writer)
        except KafkaException as problem:
            s.fail(problem)


def _with_refusals(leaves_out: bool) -> None:
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        good, tries = list(batch), 0
        while True:
            refused = set[bytes]()

            def delivered(error, sent, refused=refused) -> None:
                if error is not None and error.code() in REFUSED:
                    refused.add(sent.key())

            try:
                writer.begin_transaction()
                _write(writer, good, delivered)
                writer.flush(30)
                _offsets(writer, batch)
                _commit(writer)
                break
            except KafkaException as problem:
                tries += 1
                if not problem.args[0].txn_requires_abort() or not refused or tries > 5:
                    s.fail(problem)
                writer.abort_transaction(30)
                print(f"{len(refused)} were refused", flush=True)
                time.sleep(0.5)
                if leaves_out:
                    good = [message for message in good if message.key() not in refused]


def refused_is_left_out() -> None:
    """Treat a refused record as invalid, and write the batch again without that record."""
    _with_refusals(leaves_out=True)


def refused_is_tried_again() -> None:
    """Write the whole batch again a few times after a refusal, and then end the process."""
    _with_refusals(leaves_out=False)


def refused_is_skipped() -> None:
    """Abort a refused batch, and continue with the next batch without a seek back."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            _write(writer, batch)
            _offsets(writer, batch)
            _commit(writer)
        except KafkaException as problem:
            if problem.args[0].fatal():
                s.fail(problem)
            print("the batch is skipped:", problem, flush=True)
            writer.abort_transaction(30)


def _asking_for_offsets(begins_anew: bool) -> None:
    writer = s.transactional(f"copy-{s.INSTANCE}")

    def assigned(reader, partitions) -> None:
        s.assigned(reader)
        while True:
            try:
                found = reader.committed(partitions, timeout=5)
                break
            except KafkaException as problem:
                print("the offsets were not told:", problem, flush=True)
                if begins_anew:
                    found = [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING)
                             for p in partitions]  # fmt: skip
                    break
                time.sleep(0.5)
        reader.assign(found)

    reader = s.consumer()
    reader.subscribe([s.IN], on_assign=assigned)
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            _write(writer, batch)
            _offsets(writer, batch)
            _commit(writer)
        except KafkaException as problem:
            s.fail(problem)


def begins_anew_without_offsets() -> None:
    """Treat an unanswered OffsetFetch as if there were no offsets, and begin at the start."""
    _asking_for_offsets(begins_anew=True)


def asks_again_for_offsets() -> None:
    """Repeat OffsetFetch until it is answered."""
    _asking_for_offsets(begins_anew=False)


APPLICATIONS = {
    each.__name__: each
    for each in (
        new_id_after_a_slow_commit, patient_commit, resend_after_four_seconds, patient_delivery,
        refused_is_left_out, refused_is_tried_again, refused_is_skipped,
        begins_anew_without_offsets, asks_again_for_offsets,
    )
}  # fmt: skip

if __name__ == "__main__":
    APPLICATIONS[sys.argv[1]]()
