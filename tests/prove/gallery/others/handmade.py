"""Copiers with a producer that is written by hand on the protocol.

The program itself makes batches and sequence numbers, and ends transactions. It retries requests
without an answer and retriable errors. Any other error ends the process, which is then started
again.
"""

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from oncelog.client import Consumer
from oncelog.client.cluster_view import ClusterView
from oncelog.client.group_metadata import GroupMetadata, with_metadata
from oncelog.client.retries import now_ms
from oncelog.client.transactions.requests import TransactionRequests
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.error_codes import ErrorCode
from oncelog.wire.errors import KafkaError, error_for
from oncelog.wire.messages import produce

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
IN, OUT = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
INSTANCE = os.environ["ONCELOG_INSTANCE"]
PRODUCE, PRODUCE_V2 = 0, 12
LONG_MS, TRY_S = 60_000, 1.5
CHUNK, FEW = 2, 50  # almost all batches have as many records; transactions are short
Records = Sequence[Any]


class HandmadeProducer:
    """A producer with transaction version 2, in which Produce adds its partition."""

    def __init__(self) -> None:
        self._view = ClusterView(SERVERS)
        self._requests = TransactionRequests(
            self._view, f"copy-{INSTANCE}", timeout_ms=30_000, backoff=(50, 500)
        )
        self._producer = (-1, -1)
        self._next = defaultdict[int, int](int)  # sequence number, by partition

    async def init(self) -> None:
        session = await self._requests.init_producer_id(
            now_ms() + LONG_MS, transaction_timeout_ms=60_000
        )
        self._producer = (session.producer_id, session.producer_epoch)

    def encoded(self, partition: int, records: Records) -> bytearray:
        """Return a batch with the next sequence number. `delivered` advances this number."""
        builder = BatchBuilder()
        for record in records:
            builder.append(record.timestamp, record.key, record.value)
        return builder.build(
            producer_id=self._producer[0], producer_epoch=self._producer[1],
            base_sequence=self._next[partition], is_transactional=True,
        )  # fmt: skip

    async def write(self, partition: int, batch: bytearray) -> None:
        """Send a batch, and repeat the same bytes until a broker answers."""

        async def attempt() -> None:
            connection = await self._view.leader_of(OUT, partition)
            parts = [produce.ProduceTopic(OUT, None, [produce.ProducePartition(partition, batch)])]
            request = produce.ProduceRequest(f"copy-{INSTANCE}", -1, 30_000, parts)
            version = connection.version_for(PRODUCE, newest=PRODUCE_V2)
            body = produce.encode_request(request, version)
            answer = await connection.send(PRODUCE, version, body, timeout_ms=30_000)
            code = produce.decode_response(answer, version).topics[0].partitions[0].error_code
            if code not in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                raise error_for(code)

        await self._view.retrying(attempt, timeout_ms=LONG_MS)

    def delivered(self, partition: int, count: int) -> None:
        self._next[partition] += count

    async def offsets(self, membership: GroupMetadata, records: Records) -> None:
        """Send the offsets after these records in the transaction.

        `membership` is the group metadata with which the records were read.
        """
        ends = {(r.topic, r.partition): r.offset + 1 for r in by_offset(records)}
        await self._requests.commit_offsets(
            self._producer, membership, with_metadata(ends), now_ms() + LONG_MS, is_v2=True
        )  # fmt: skip

    async def commit(self) -> None:
        before = self._producer
        self._producer = await self._requests.end(
            before, now_ms() + LONG_MS, is_commit=True, is_v2=True
        )
        if self._producer != before:
            self._next.clear()

    async def close(self) -> None:
        await self._view.close()


def by_offset(records: Records) -> list[Any]:
    return sorted(records, key=lambda record: record.offset)


def by_partition(records: Records) -> dict[int, list[Any]]:
    found = defaultdict[int, list[Any]](list)
    for record in records:
        found[record.partition].append(record)
    return found


async def right(producer: HandmadeProducer, consumer: Consumer, records: list[Any]) -> None:
    """Commit the transaction after each of its batches is answered."""
    for partition, part in by_partition(records).items():
        await producer.write(partition, producer.encoded(partition, part))
        producer.delivered(partition, len(part))
    await producer.offsets(consumer.group_metadata(), records)
    await producer.commit()


async def end_before_produce(
    producer: HandmadeProducer, consumer: Consumer, records: list[Any]
) -> None:
    """Commit the transaction 1 s after its batches were sent, even if they are unanswered."""
    writing: set[asyncio.Task[None]] = set()
    for partition, part in by_partition(records).items():
        batch = producer.encoded(partition, part)
        producer.delivered(partition, len(part))
        writing.add(asyncio.create_task(producer.write(partition, batch)))
    done, late = await asyncio.wait(writing, timeout=1.0)
    for task in done:
        task.result()
    await producer.offsets(consumer.group_metadata(), records)
    await producer.commit()
    for task in late:
        task.add_done_callback(lambda each: print("came late:", each.exception(), flush=True))


async def other_records(producer: HandmadeProducer, consumer: Consumer, records: list[Any]) -> None:
    """Write the newest records first, and replace an unanswered batch by another batch.

    The other batch has the newest records at that time, and the same sequence number. A rebalance
    fences the transaction, as it should.
    """
    membership, waiting = consumer.group_metadata(), newest_first(records)
    while waiting:
        partition = waiting[0].partition
        chunk = [each for each in waiting if each.partition == partition][:CHUNK]
        writing = asyncio.create_task(producer.write(partition, producer.encoded(partition, chunk)))
        done, _ = await asyncio.wait({writing}, timeout=TRY_S)
        if done:
            writing.result()
            producer.delivered(partition, len(chunk))
            waiting = [each for each in waiting if each not in chunk]
            continue
        more = await consumer.poll(100, FEW)
        records += more
        waiting = newest_first([*waiting, *more])
    await producer.offsets(membership, records)
    await producer.commit()


def newest_first(records: Records) -> list[Any]:
    return sorted(records, key=lambda record: -record.offset)


APPLICATIONS = {each.__name__: each for each in (right, end_before_produce, other_records)}


async def copy(name: str) -> None:
    producer, transaction = HandmadeProducer(), APPLICATIONS[name]
    async with Consumer(
        SERVERS, group_id="gallery", isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.subscribe([IN])
        try:
            await producer.init()
            while True:
                records = list(await consumer.poll(200, FEW))
                if records:
                    await transaction(producer, consumer, records)
        finally:
            await producer.close()


async def main(name: str) -> None:
    task = asyncio.create_task(copy(name))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return
    except KafkaError as problem:
        print(problem, file=sys.stderr, flush=True)
        raise SystemExit(1) from problem


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
