"""The feeder: unique inputs at a rate, each exactly once, by our idempotent client.

It goes to the cluster directly, past the proxy: the faults are the application's alone. An input's
id stands in its key, in the header `oncelog-id` and as "id" in its value, a JSON object, unless a
function of the user's makes key and value.
"""

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ...client.blocking_producer import BlockingProducer, HandedDelivery
from ..cluster.failure import Failure
from .relation import ID_HEADER
from .settings import INPUTS_MAX

FLUSH_TIMEOUT_S = 60.0
Feed = Callable[[int, str], Any]
"""From a number and the id to (key, value), or to a list of (topic, key, value)."""


class Feeder(threading.Thread):
    """Runs until `stop`; `fed` is how many were handed over."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        rate: float,
        feed: Feed | None = None,
        prefix: str = "in",
    ) -> None:
        super().__init__(name="prove-feeder", daemon=True)
        self._address, self._topics, self._rate = bootstrap, topics, rate
        self._feed, self._prefix = feed or self._plain, prefix
        self._over = threading.Event()
        self.failed: Exception | None = None
        self.fed = 0

    def stop(self) -> None:
        """Feed no more, and wait until all that was fed is acknowledged."""
        self._over.set()
        if self.is_alive():
            self.join(FLUSH_TIMEOUT_S + 5)
        self.check()
        if self.is_alive():  # what comes later would be taken for outputs of no input
            raise Failure(f"Inputs were not acknowledged within {FLUSH_TIMEOUT_S:.0f} s.")

    def close(self) -> None:
        """At once; nobody asks what became of it."""
        self._over.set()

    def check(self) -> None:
        if self.failed is not None:
            raise Failure(f"The inputs could not be fed: {self.failed}") from self.failed

    def run(self) -> None:
        try:
            with BlockingProducer(
                {"bootstrap.servers": self._address, "client.id": "oncelog-prove-feeder"},
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
            for topic, key, value in self._records(number):
                header = (ID_HEADER, f"{self._prefix}-{number:06d}".encode())
                deliveries.append(
                    producer.send(topic, _bytes(value), key=_bytes(key), headers=[header])
                )
            self.fed += 1
        raise AssertionError  # count() has no end

    def _records(self, number: int) -> list[tuple[str, Any, Any]]:
        made: Any = self._feed(number, f"{self._prefix}-{number:06d}")
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
