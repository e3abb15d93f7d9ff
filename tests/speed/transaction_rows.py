"""Rows of the table that measure transactions and read_committed consumers."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from .target import Figures, Target, latency_figures, random_bytes

T = TypeVar("T")
PARTITIONS, TIMEOUT_S = 3, 30.0
RECORDS, RECORD_BYTES = 30, 100  # of a transaction, where transactions are counted
READ_RECORDS, READ_RECORD_BYTES = 100, 1000  # where they are read
WRITERS, ABORTED_OF, WRITTEN_PER_S = 10, 10, 100


def transactions(target: Target) -> dict[str, Figures]:
    """Measure transactions of 30 records over 3 partitions, with 1, 10 and 50 producers."""
    return {_row("transactions", n, "producer"): _transactions(target, n) for n in (1, 10, 50)}


def committed_readers(target: Target) -> dict[str, Figures]:
    """Measure read_committed consumers.

    The throughput is that of 1 and 3 consumers, which read transactions of 100 records of 1 kB
    again and again. Every tenth transaction is aborted. The latency is that of a consumer at the
    end of the log, for committed transactions of 30 records of 100 bytes. It is the time from the
    end of the commit call to the transaction's last record.
    """
    found: dict[str, Figures] = {}
    with target.topic(PARTITIONS) as topic:
        _write_transactions(target, topic)
        for readers in (1, 3):
            row = _row("read_committed", readers, "reader")
            found[row] = _read_again(target, topic, readers)
    found["read_committed, live"] = latency_figures(_live(target))
    return found


def _row(what: str, count: int, who: str) -> str:
    return f"{what}, {count} {who}{'s' * (count > 1)}"


def _transactions(target: Target, producers: int) -> Figures:
    ended: list[float] = []  # when, of all producers
    is_over = threading.Event()

    def commit_until_the_end(writer: Producer, topic: str) -> None:
        while not is_over.is_set():
            _transaction(writer, topic, RECORDS, RECORD_BYTES)
            ended.append(time.perf_counter())

    with target.topic(PARTITIONS) as topic, ThreadPoolExecutor(producers) as pool:
        writers = _in_parallel(pool, producers, lambda n: _writer(target, topic, n))
        running = [pool.submit(commit_until_the_end, writer, topic) for writer in writers]
        try:
            time.sleep(target.warm_up_s)
            cpu_s, began = target.cpu_s(), time.perf_counter()
            time.sleep(target.seconds)
            while not (ended and ended[-1] >= began) and not any(each.done() for each in running):
                time.sleep(0.01)  # on a slow machine; a commit that fails ends its thread
            seconds, cpu_s = time.perf_counter() - began, target.cpu_s() - cpu_s
        finally:
            is_over.set()
        for each in running:
            each.result()
    count = sum(began <= each <= began + seconds for each in ended)
    return {
        "transactions_per_s": count / seconds,
        **target.costs(cpu_ms_per_transaction=cpu_s * 1000 / count),
    }


def _writer(target: Target, topic: str, number: int) -> Producer:
    identity = {"transactional.id": f"{topic}-{number}", "linger.ms": 0}
    producer = Producer(target.settings(**identity))
    producer.init_transactions(TIMEOUT_S)
    return producer


def _transaction(
    producer: Producer, topic: str, records: int, record_bytes: int, *, is_aborted: bool = False
) -> None:
    value = random_bytes(record_bytes)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, value, partition=number % PARTITIONS)
    if is_aborted:
        producer.flush(TIMEOUT_S)  # an abort drops records that are still queued
        producer.abort_transaction(TIMEOUT_S)
    else:
        producer.commit_transaction(TIMEOUT_S)


def _write_transactions(target: Target, topic: str) -> None:
    """Write a fixed number of transactions, or fewer if that takes far too long."""
    count = max(2, round(WRITTEN_PER_S * target.seconds / WRITERS))
    deadline = time.monotonic() + 10 + 5 * target.seconds

    def write(number: int) -> None:
        producer = _writer(target, topic, number)
        for each in range(count):
            if time.monotonic() > deadline:
                return
            is_aborted = (each + number) % ABORTED_OF == 0
            _transaction(
                producer, topic, READ_RECORDS, READ_RECORD_BYTES, is_aborted=is_aborted
            )  # fmt: skip

    with ThreadPoolExecutor(WRITERS) as pool:
        _in_parallel(pool, WRITERS, write)


def _read_again(target: Target, topic: str, readers: int) -> Figures:
    """Measure readers that read all records repeatedly, each in a group of its own."""
    with ThreadPoolExecutor(readers) as pool:
        cpu_s, began = target.cpu_s(), time.perf_counter()
        end = began + target.seconds
        counts = _in_parallel(pool, readers, lambda n: _read_until(target, topic, n, end))
        seconds, cpu_s = time.perf_counter() - began, target.cpu_s() - cpu_s
    total_bytes = sum(counts)
    return {
        "mb_per_s": total_bytes / 1e6 / seconds,
        **target.costs(cpu_s_per_gb=cpu_s / (total_bytes / 1e9)),
    }


def _read_until(target: Target, topic: str, number: int, end: float) -> int:
    """Return the bytes of committed records that one reader gets until the time `end`.

    At the end of a partition the reader begins again at its start.
    """
    count = 0
    # A fetch that waits at the end of all partitions would keep the seek waiting for as long.
    settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
    with closing(_reader(target, f"{topic}-{number}", settings)) as consumer:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
        while (now := time.perf_counter()) < end or not count:
            if now > end + TIMEOUT_S:
                raise TimeoutError(f"nothing was read in {TIMEOUT_S:g} s")
            for message in consumer.consume(1000, 0.1):
                if (error := message.error()) is None:
                    count += len(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    consumer.seek(TopicPartition(topic, message.partition() or 0, 0))
                else:
                    raise KafkaException(error)
    return count


def _reader(target: Target, group: str, more: dict[str, object]) -> Consumer:
    return Consumer({
        "bootstrap.servers": target.bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        **more,
    })  # fmt: skip


def _live(target: Target) -> list[float]:
    """Return the seconds from each commit to the read of its last record.

    Each transaction begins when the records of the one before have been read.
    """
    found: list[float] = []
    with target.topic(PARTITIONS) as topic:
        producer = _writer(target, topic, 0)
        with closing(_reader(target, topic, {})) as consumer:
            consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
            begin = time.perf_counter() + target.warm_up_s
            while (now := time.perf_counter()) < begin + target.seconds or not found:
                _transaction(producer, topic, RECORDS, RECORD_BYTES)
                committed = time.perf_counter()
                _read_exactly(consumer, RECORDS)
                if now >= begin:
                    found.append(time.perf_counter() - committed)
    return found


def _read_exactly(consumer: Consumer, count: int) -> None:
    deadline = time.perf_counter() + TIMEOUT_S
    while count:
        message = consumer.poll(1)
        if message is not None and (error := message.error()) is not None:
            raise KafkaException(error)
        count -= message is not None
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{count} committed records not read in {TIMEOUT_S:g} s")


def _in_parallel(pool: ThreadPoolExecutor, count: int, work: Callable[[int], T]) -> Sequence[T]:
    return list(pool.map(work, range(count)))
