"""Sends unique inputs at a rate, each exactly once, by our idempotent client.

The feeder connects to the cluster directly, not through the proxy, so faults affect only the
application. An input has its id in its key, in the header `oncelog-id` and as "id" in its value, a
JSON object, unless a function of the user creates key and value. Some further inputs are aborted
(see `aborted_inputs.py`).
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...client.blocking_producer import BlockingProducer, HandedDelivery
from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.failure import Failure
from .aborted_inputs import AbortedInputs, Handed
from .facts import InputAborted
from .relation import ID_HEADER
from .settings import INPUTS_MAX

FLUSH_TIMEOUT_S = 60.0
Feed = Callable[[int, str], Any]
"""From a number and the id to (key, value), or to a list of (topic, key, value)."""


class Feeder(threading.Thread):
    """The producer of the inputs, which runs until `stop`. `fed` counts the sent inputs.

    aborts: further inputs are written in transactions that are aborted.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        rate: float,
        feed: Feed | None = None,
        prefix: str = "in",
        aborts: bool = False,
    ) -> None:
        super().__init__(name="prove-feeder", daemon=True)
        self._config, self._topics, self._rate = config, topics, rate
        self._feed, self._prefix = feed or self._plain, prefix
        self._over = Flag()
        self._feeding = threading.Lock()  # a user's function need not be thread-safe
        self.failed: Exception | None = None
        self.fed = 0
        self._aborted = AbortedInputs(
            config, f"oncelog-prove-{prefix}", self._send_aborted, self._aborted_id
        )
        self._aborts = aborts

    def start(self) -> None:
        super().start()
        if self._aborts:
            self._aborted.start()

    def stop(self) -> None:
        """Send no more inputs. Wait until the sent inputs are acknowledged or aborted."""
        self._aborted.close()
        self._over.set()
        if self.is_alive():
            self.join(FLUSH_TIMEOUT_S + 5)
        self.check()
        if self.is_alive():  # a later input would make outputs of no known input
            raise Failure(f"Inputs were not acknowledged within {FLUSH_TIMEOUT_S:.0f} s.")
        if not self._aborted.stop():
            raise Failure("A transaction of inputs could not be aborted.")

    def close(self) -> None:
        """Stop immediately, without waiting for acknowledgements."""
        self._aborted.close()
        self._over.set()

    def check(self) -> None:
        failed = self.failed or self._aborted.failed
        if failed is not None:
            raise Failure(f"The inputs could not be fed: {failed}") from failed

    @property
    def aborted_ids(self) -> frozenset[str]:
        """Return the ids of inputs that must stay invisible, even if no log has them."""
        return frozenset(self._aborted.ids)

    @property
    def aborted(self) -> list[InputAborted]:
        return list(self._aborted.facts)

    def run(self) -> None:
        try:
            with BlockingProducer(
                {**self._config, "client.id": "oncelog-prove-feeder"},
                linger_ms=5,
            ) as producer:
                deliveries = self._go(producer)
                producer.flush()
                for delivery in deliveries:
                    delivery.result(FLUSH_TIMEOUT_S)
        except Exception as problem:  # of the cluster, or of the user's function: see `check`
            self.failed = problem

    def _go(self, producer: BlockingProducer) -> list[HandedDelivery]:
        deliveries: list[HandedDelivery] = []
        started = time.monotonic()
        for number in itertools.count():
            due = started + number / self._rate
            if self._over.wait(max(0.0, due - time.monotonic())) or number >= INPUTS_MAX:
                return deliveries
            deliveries += self._send(producer, number, f"{self._prefix}-{number:06d}")
            self.fed += 1
        raise AssertionError  # count() has no end

    def _send(self, producer: BlockingProducer, number: int, which: str) -> list[HandedDelivery]:
        header = (ID_HEADER, which.encode())
        return [
            producer.send(topic, _bytes(value), key=_bytes(key), headers=[header])
            for topic, key, value in self._records(number, which)
        ]

    def _aborted_id(self, number: int) -> str:
        return f"{self._prefix}-a{number:06d}"

    def _send_aborted(self, producer: BlockingProducer, number: int) -> Handed:
        which = self._aborted_id(number)
        return [(which, each) for each in self._send(producer, INPUTS_MAX + number, which)]

    def _records(self, number: int, which: str) -> list[tuple[str, Any, Any]]:
        with self._feeding:
            made: Any = self._feed(number, which)
        if isinstance(made, list):
            return made
        key, value = made
        return [(self._topics[number % len(self._topics)], key, value)]

    @staticmethod
    def _plain(number: int, each: str) -> tuple[str, str]:
        value = {"id": each, "number": number, "customer": f"c{number % 20}", "amount": number % 97}
        return each, json.dumps(value)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
