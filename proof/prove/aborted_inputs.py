"""Inputs that never become visible, because they are written in transactions and aborted.

A read_committed consumer never sees such inputs, so any output for them is an error. A transaction
is open only for some milliseconds, since committed records at higher offsets are delayed for as
long.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...client.blocking_producer import BlockingProducer, HandedDelivery
from ...deploy.cluster.ends.flag import Flag
from ...wire.errors import KafkaError
from .facts import InputAborted

EACH_S = 0.7
IN_EACH = 3  # inputs of a transaction
TRANSACTION_TIMEOUT_MS = 10_000
TRY_AGAIN_S = 0.3
STOP_TIMEOUT_S = 40.0
ABORTED_MAX = 50_000
Handed = list[tuple[str, HandedDelivery]]
SendInput = Callable[[BlockingProducer, int], Handed]
"""Hand over the input with this number; ids and deliveries come back."""


class AbortedInputs(threading.Thread):
    """The producer of aborted inputs, which runs until `stop`.

    ids: the ids of all attempted inputs, known before they are sent. facts: a fact for each aborted
    input that is in a log.
    """

    def __init__(
        self, config: Mapping[str, Any], name: str, send: SendInput, id_of: Callable[[int], str]
    ) -> None:
        super().__init__(name="prove-aborted-inputs", daemon=True)
        self._config, self._name, self._send, self._id_of = config, name, send, id_of
        self._over = Flag()
        self._number = 0
        self.ids = set[str]()
        self.facts: list[InputAborted] = []
        self.failed: Exception | None = None

    def stop(self) -> bool:
        """Begin no more transactions, and wait. Return whether the last transaction has ended."""
        self.close()
        if self.is_alive():
            self.join(STOP_TIMEOUT_S)
        return not self.is_alive()

    def close(self) -> None:
        self._over.set()

    def run(self) -> None:
        try:
            while not self._over.is_set() and len(self.ids) < ABORTED_MAX:
                # A new producer ends the open transaction of the one before.
                with contextlib.suppress(KafkaError, OSError, TimeoutError):
                    self._with_a_producer()
                self._over.wait(TRY_AGAIN_S)
            self._end_the_last()
        except Exception as problem:  # of the user's function: see `Feeder.check`
            self.failed = problem

    def _with_a_producer(self) -> None:
        with self._producer() as producer:
            producer.init_transactions()
            while not self._over.wait(EACH_S) and len(self.ids) < ABORTED_MAX:
                self._one(producer)

    def _producer(self) -> BlockingProducer:
        return BlockingProducer(
            {**self._config, "client.id": "oncelog-prove-feeder"},
            transactional_id=self._name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=0,
        )

    def _one(self, producer: BlockingProducer) -> None:
        numbers = range(self._number, self._number + IN_EACH)
        self._number += IN_EACH
        self.ids |= {self._id_of(number) for number in numbers}
        producer.begin_transaction()
        try:
            handed = [each for number in numbers for each in self._send(producer, number)]
            producer.flush()
        finally:
            producer.abort_transaction()
        at_s = time.monotonic()
        for which, delivery in handed:
            place = delivery.result(STOP_TIMEOUT_S)
            self.facts.append(
                InputAborted(at_s, which, place.topic, place.partition, place.offset, self._name)
            )

    def _end_the_last(self) -> None:
        """End the last transaction, which would otherwise be open until its timeout."""
        with contextlib.suppress(KafkaError, OSError, TimeoutError), self._producer() as producer:
            producer.init_transactions()
