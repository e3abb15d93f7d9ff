"""Transactional producers of three client libraries with the same methods.

`is_fenced` recognises the errors that a library raises when its producer was fenced.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

from ..waiting import until

TIMEOUT_S = 30


class Producer:
    """A producer of one library with a transactional id. The constructor initialises it."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        raise NotImplementedError

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Send a record, and return when it is acknowledged."""

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        """Send an offset of the topic's partition 0 for a group without members."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...

    @staticmethod
    def is_fenced(error: BaseException) -> bool:
        """Return whether the library's error says that another session has fenced this one."""
        raise NotImplementedError


class Confluent(Producer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from confluent_kafka import Producer as Made

        self._bootstrap = bootstrap
        self._made = Made(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._made.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self._made.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        from confluent_kafka import KafkaException

        delivered: list[Any] = []
        self._made.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: delivered.append(error)
        )
        until(lambda: self._made.poll(0.05) or delivered, "no delivery report", TIMEOUT_S)
        if delivered[0] is not None:
            raise KafkaException(delivered[0])

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        with contextlib.closing(consumer):
            self._made.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT_S
            )

    def commit(self) -> None:
        self._made.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._made.abort_transaction(TIMEOUT_S)

    @staticmethod
    def is_fenced(error: BaseException) -> bool:
        from confluent_kafka import KafkaException

        if not isinstance(error, KafkaException):
            return False
        return error.args[0].name() == "_FENCED" and error.args[0].fatal()


class KafkaPython(Producer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        from kafka import KafkaProducer

        self._made = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._made.init_transactions()

    def begin(self) -> None:
        self._made.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._made.send(topic, value, partition=partition).get(TIMEOUT_S)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        from kafka import TopicPartition  # type: ignore[attr-defined]
        from kafka.structs import OffsetAndMetadata

        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._made.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._made.commit_transaction()

    def abort(self) -> None:
        self._made.abort_transaction()

    def close(self) -> None:
        self._made.close(timeout=1)

    @staticmethod
    def is_fenced(error: BaseException) -> bool:
        from kafka.errors import InvalidProducerEpochError, ProducerFencedError

        # InvalidProducerEpoch answers a produce; as in Java's client it is not final.
        return isinstance(error, ProducerFencedError | InvalidProducerEpochError)


class Aiokafka(Producer):
    """A producer of aiokafka with its event loop in a thread."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        from aiokafka import AIOKafkaProducer

        self._made = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        await self._made.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def begin(self) -> None:
        self._run(self._made.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self._made.send_and_wait(topic, value, partition=partition))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        from aiokafka import TopicPartition

        self._run(self._made.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def commit(self) -> None:
        self._run(self._made.commit_transaction())

    def abort(self) -> None:
        self._run(self._made.abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            with contextlib.suppress(Exception):  # of a producer that has failed
                async with asyncio.timeout(2):
                    await self._made.stop()

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    @staticmethod
    def is_fenced(error: BaseException) -> bool:
        from aiokafka.errors import ProducerFenced

        return isinstance(error, ProducerFenced)


PRODUCERS: dict[str, type[Producer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
