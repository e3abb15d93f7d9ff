"""Transactional copiers with confluent-kafka, one correct and the others with one mistake each."""

# A message of a topic without errors has its key, value and place.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false

import sys
import time
import uuid

import surroundings as s
from confluent_kafka import KafkaException


def right() -> None:
    """Commit offsets and group metadata in the transaction, and seek back after an abort."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            _one_transaction(reader, writer, batch)
        except KafkaException as problem:
            if problem.args[0].fatal() or not problem.args[0].txn_requires_abort():
                s.fail(problem)
            writer.abort_transaction(30)
            s.seek_back(reader, batch)


def _one_transaction(reader, writer, batch) -> None:
    writer.begin_transaction()
    for message in batch:
        writer.produce(s.OUT, key=message.key(), value=message.value())
    writer.send_offsets_to_transaction(s.next_offsets(batch), s.membership, 30)
    _commit(writer)


def _commit(writer) -> None:
    """Commit the transaction, and repeat the call while its outcome is unknown."""
    while True:
        try:
            return writer.commit_transaction(30)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def offsets_outside() -> None:
    """Write output in a transaction, and then commit the offsets with the consumer."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            for message in batch:
                writer.produce(s.OUT, key=message.key(), value=message.value())
            _commit(writer)
            reader.commit(offsets=s.next_offsets(batch), asynchronous=False)
        except KafkaException as problem:
            s.fail(problem)


def auto_commit() -> None:
    """Write output in a transaction, and let the consumer commit offsets by its timer."""
    reader = s.consumer(enable_auto_commit=True)
    writer = s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            for message in batch:
                writer.produce(s.OUT, key=message.key(), value=message.value())
            _commit(writer)
        except KafkaException as problem:
            s.fail(problem)


def read_uncommitted() -> None:
    reader = s.consumer(isolation_level="read_uncommitted")
    writer = s.transactional(f"copy-{s.INSTANCE}")
    for batch in s.batches(reader):
        try:
            _one_transaction(reader, writer, batch)
        except KafkaException as problem:
            s.fail(problem)


def shared_id() -> None:
    """Use a fixed transactional id, which is the same for all instances."""
    reader, writer = s.consumer(), s.transactional("copy")
    for batch in s.batches(reader):
        try:
            _one_transaction(reader, writer, batch)
        except KafkaException:
            writer = s.transactional("copy")  # "it helps to make it anew"


def abort_without_seek() -> None:
    """Abort a failed batch, and continue with the next batch without a seek back."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    for number, batch in enumerate(s.batches(reader)):
        try:
            writer.begin_transaction()
            for message in batch:
                writer.produce(s.OUT, key=message.key(), value=message.value())
            if number % 20 == 19:
                raise ValueError("what a validation of the batch would raise")
            metadata = reader.consumer_group_metadata()
            writer.send_offsets_to_transaction(s.next_offsets(batch), metadata, 30)
            _commit(writer)
        except ValueError:
            writer.abort_transaction(30)
        except KafkaException as problem:
            if problem.args[0].fatal() or not problem.args[0].txn_requires_abort():
                s.fail(problem)
            writer.abort_transaction(30)


def plain_producer_beside() -> None:
    """Write half of the output with a second producer, outside the transactions."""
    reader, writer = s.consumer(), s.transactional(f"copy-{s.INSTANCE}")
    beside = s.producer(enable_idempotence=True)
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            for message in batch:
                target = writer if message.offset() % 2 else beside
                target.produce(s.OUT, key=message.key(), value=message.value())
            beside.flush(30)
            metadata = reader.consumer_group_metadata()
            writer.send_offsets_to_transaction(s.next_offsets(batch), metadata, 30)
            _commit(writer)
        except KafkaException as problem:
            s.fail(problem)


def too_long() -> None:
    """Let some transactions take 5 s, with a transaction timeout of 3 s."""
    writer = s.transactional(f"copy-{s.INSTANCE}", transaction_timeout_ms=3_000)
    reader = s.consumer()
    for number, batch in enumerate(s.batches(reader)):
        try:
            writer.begin_transaction()
            for message in batch:
                writer.produce(s.OUT, key=message.key(), value=message.value())
            writer.flush(30)
            if number % 8 == 7:  # a slow service
                time.sleep(5)
            metadata = reader.consumer_group_metadata()
            writer.send_offsets_to_transaction(s.next_offsets(batch), metadata, 30)
            _commit(writer)
        except KafkaException as problem:
            print(problem, flush=True)  # and on with the next batch
            writer = s.transactional(f"copy-{s.INSTANCE}", transaction_timeout_ms=3_000)


def random_id() -> None:
    """Use a new transactional id at each start, and commit offsets outside the transaction.

    The old id is never fenced.
    """
    reader, writer = s.consumer(), s.transactional(f"copy-{uuid.uuid4()}")
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            for message in batch:
                writer.produce(s.OUT, key=message.key(), value=message.value())
            _commit(writer)
            reader.commit(offsets=s.next_offsets(batch), asynchronous=False)
        except KafkaException as problem:
            s.fail(problem)


APPLICATIONS = {
    each.__name__: each
    for each in (
        right, offsets_outside, auto_commit, read_uncommitted, shared_id, abort_without_seek,
        plain_producer_beside, too_long, random_id,
    )
}  # fmt: skip

if __name__ == "__main__":
    APPLICATIONS[sys.argv[1]]()
