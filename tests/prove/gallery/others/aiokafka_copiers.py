"""Copiers with aiokafka, which has no group metadata in transactions and no require_stable."""

# pyright: reportIncompatibleMethodOverride=false

import asyncio
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

CLUSTER: dict[str, Any] = {"bootstrap_servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
if (file := os.environ.get("ONCELOG_CLIENT_CONFIG")) is not None:  # on a secured cluster
    values = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    CLUSTER |= {
        "security_protocol": values["security.protocol"],
        "sasl_mechanism": values["sasl.mechanism"],
        "sasl_plain_username": values["sasl.username"],
        "sasl_plain_password": values["sasl.password"],
        "ssl_context": ssl.create_default_context(cafile=values["ssl.ca.location"]),
    }
IN, OUT = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
INSTANCE = os.environ["ONCELOG_INSTANCE"]
GROUP = "gallery"
PATIENCE_S = 3.0


def consumer(**config) -> AIOKafkaConsumer:
    begin = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    return AIOKafkaConsumer(group_id=GROUP, **{**CLUSTER, **begin, **config})


class Producers(ConsumerRebalanceListener):
    """A rebalance listener with a transactional producer for each assigned partition.

    InitProducerId of the new producer fences the former owner, and ends its transaction. After that
    the listener seeks to the committed offset, since aiokafka may have fetched an older one before.
    `lock` is held until then, so that readers wait.
    """

    def __init__(self, reader: AIOKafkaConsumer) -> None:
        self._reader = reader
        self.lock = asyncio.Lock()
        self.by_partition: dict[TopicPartition, AIOKafkaProducer] = {}

    async def on_partitions_revoked(self, revoked) -> None:
        async with self.lock:
            for producer in self.by_partition.values():
                await producer.stop()
            self.by_partition.clear()

    async def on_partitions_assigned(self, assigned) -> None:
        async with self.lock:
            for each in assigned:
                name = f"copy-{each.topic}-{each.partition}"
                producer = AIOKafkaProducer(transactional_id=name, **CLUSTER)
                await producer.start()
                self.by_partition[each] = producer
            if assigned:
                await self._reader.seek_to_committed(*assigned)


async def _copy(send_all) -> None:
    """Copy with one transactional id for each input partition. `send_all` writes a batch."""
    reader = consumer(isolation_level="read_committed")
    producers = Producers(reader)
    reader.subscribe([IN], listener=producers)
    await reader.start()
    while True:
        async with producers.lock:
            taken = await reader.getmany(timeout_ms=200, max_records=20)
            for partition, batch in taken.items():
                producer = producers.by_partition.get(partition)
                if producer is None:
                    continue  # just assigned: it is sought anew
                async with producer.transaction():
                    await send_all(producer, batch)
                    end = {partition: batch[-1].offset + 1}
                    await producer.send_offsets_to_transaction(end, GROUP)
        await asyncio.sleep(0)


async def right() -> None:
    async def send_all(producer, batch) -> None:
        sent = [await producer.send(OUT, key=r.key, value=r.value) for r in batch]
        await asyncio.gather(*sent)

    await _copy(send_all)


async def unawaited() -> None:
    """Ignore the deliveries. `send` returns a future, and aiokafka commits after its error."""

    async def send_all(producer, batch) -> None:
        for record in batch:
            await producer.send(OUT, key=record.key, value=record.value)

    await _copy(send_all)


async def impatient() -> None:
    """Send records again after 3 s without delivery. The timeout cancels their future."""

    async def send_all(producer, batch) -> None:
        sent = [(r, await producer.send(OUT, key=r.key, value=r.value)) for r in batch]
        for record, delivery in sent:
            while True:
                try:
                    await asyncio.wait_for(delivery, PATIENCE_S)
                    break
                except TimeoutError:
                    print(f"{record.key} was not delivered, so once more", flush=True)
                    delivery = await producer.send(OUT, key=record.key, value=record.value)

    await _copy(send_all)


async def patient() -> None:
    """Wait for records that are not delivered after 3 s, without a cancellation."""

    async def send_all(producer, batch) -> None:
        sent = [(r, await producer.send(OUT, key=r.key, value=r.value)) for r in batch]
        for record, delivery in sent:
            while True:
                try:
                    await asyncio.wait_for(asyncio.shield(delivery), PATIENCE_S)
                    break
                except TimeoutError:
                    print(f"{record.key} is not delivered yet", flush=True)

    await _copy(send_all)


async def id_of_the_instance() -> None:
    """Use a transactional id for each instance, and commit offsets without the generation."""
    reader = consumer(isolation_level="read_committed")
    reader.subscribe([IN])
    await reader.start()
    name = f"copy-{INSTANCE}"
    producer = AIOKafkaProducer(transactional_id=name, **CLUSTER)
    await producer.start()
    while True:
        taken = await reader.getmany(timeout_ms=200, max_records=20)
        if not taken:
            continue
        async with producer.transaction():
            for batch in taken.values():
                for record in batch:
                    await producer.send(OUT, key=record.key, value=record.value)
            ends = {partition: batch[-1].offset + 1 for partition, batch in taken.items()}
            await producer.send_offsets_to_transaction(ends, GROUP)


async def acks_1() -> None:
    """Use the defaults of aiokafka, which are acks=1 and auto-commit."""
    reader = AIOKafkaConsumer(IN, group_id=GROUP, auto_offset_reset="earliest", **CLUSTER)
    producer = AIOKafkaProducer(**CLUSTER)
    await reader.start()
    await producer.start()
    async for record in reader:
        await producer.send_and_wait(OUT, key=record.key, value=record.value)


APPLICATIONS = {
    each.__name__: each
    for each in (right, unawaited, impatient, patient, id_of_the_instance, acks_1)
}


async def main(name: str) -> None:
    task = asyncio.create_task(APPLICATIONS[name]())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
