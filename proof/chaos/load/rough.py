"""Clients with short timeouts for replicas, and clients with wrong headers of batches.

About half of the Produce requests may wait only 0 to 8 ms at the broker, so most of their batches
are in the log although the answer is a timeout. Other batches have a wrong timestamp, offset or
number of records in the header. A broker either refuses such a batch, or keeps its records for as
long as their own timestamps require.
"""

import random
import time
from collections.abc import Callable
from functools import partial

from crc32c import crc32c

from ....client.view_source import view_of
from ....wire.errors import KafkaError, error_for
from ....wire.messages import produce
from ....wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from ....wire.record_batch import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CRC_AT,
    CRC_COVERS_FROM,
    MAX_TIMESTAMP_AT,
)
from ....wire.records import Record, encode_batch
from ...judge.history.outcomes import outcome_of_send
from ...judge.history.schema import OpOutcome
from .incarnations import LoadContext, one_after_another, pause
from .payloads import plain
from .settings import APPEND

PRODUCE, PRODUCE_VERSION = 0, 9
HASTY_MS_MAX, HASTY_SHARE = 8, 1 / 2
YEAR_MS = 365 * 24 * 3_600_000
RECORDS_MAX = 3
LAST_OFFSET_DELTA_AT, COUNT_AT = 23, 57


async def rough(context: LoadContext) -> None:
    """Run clients that send batches with short timeouts or false headers until `stop()`.

    Each client lives for a while and is then replaced by the next one.
    """
    await one_after_another(partial(_Rough, context), context)


class _Rough:
    """A client that sends batches with short timeouts or false headers."""

    is_over = False

    def __init__(self, context: LoadContext) -> None:
        self._settings, self._rng, self._recorder = context.settings, context.rng, context.recorder
        self._process = context.recorder.new_process()
        self._session = 0
        self._view = view_of(context.source)
        self.close = self._view.close

    async def open(self) -> None:
        await self._view.refresh([APPEND])

    async def work(self) -> None:
        """Send one batch with a short timeout or a false header, and pause afterwards."""
        rng, settings = self._rng, self._settings
        partition = rng.randrange(settings.append_partitions)
        is_hasty = rng.random() < HASTY_SHARE
        values = [self._recorder.new_value() for _ in range(rng.randint(1, RECORDS_MAX))]
        is_old = is_hasty and len(values) > 1 and rng.random() < 1 / 2
        batch = bytearray(_batch(values, is_old))
        if not is_hasty:
            rng.choice(LIES)(batch, rng)
        rows = [
            self._recorder.send_invoked(
                self._process, f"{APPEND}/{partition}", value, session=self._session
            )
            for value in values
        ]
        wait_ms = rng.randint(0, HASTY_MS_MAX) if is_hasty else settings.request_timeout_ms
        try:
            base_offset = await self._produce(partition, bytes(batch), wait_ms)
        except KafkaError as problem:
            outcome, error = outcome_of_send(problem.number, 1), type(problem).__name__
            for row in rows:
                self._recorder.send_ended(row, outcome, error=error)
            self._session += 1  # this batch may still be appended after the next one
            await self._view.refresh([APPEND])
        else:
            for at, row in enumerate(rows):
                self._recorder.send_ended(row, OpOutcome.OK, offset=base_offset + at)
        await pause(2 * settings.pause_ms, rng)

    async def _produce(self, partition: int, batch: bytes, wait_ms: int) -> int:
        """Send a batch and return the base offset, or raise KafkaError."""
        wanted = ProduceTopic(APPEND, None, [ProducePartition(partition, batch)])
        request = ProduceRequest(None, -1, wait_ms, [wanted])
        body = produce.encode_request(request, PRODUCE_VERSION)
        connection = await self._view.leader_of(APPEND, partition)
        limit_ms = self._settings.request_timeout_ms
        answer = await connection.send(PRODUCE, PRODUCE_VERSION, body, timeout_ms=limit_ms)
        (one,) = produce.decode_response(answer, PRODUCE_VERSION).topics[0].partitions
        if one.error_code:
            raise error_for(one.error_code)
        return one.base_offset


def _batch(values: list[int], is_old: bool) -> bytes:
    """Return an encoded batch of records with these values.

    If `is_old`, the first record's timestamp is a year old.
    """
    now_ms = time.time_ns() // 1_000_000
    return encode_batch(
        [
            Record(at, now_ms - YEAR_MS * (is_old and not at), None, plain(value, 0))
            for at, value in enumerate(values)
        ]
    )


def _patched(at: int, size: int, change: Callable[[int, random.Random], int]) -> "Lie":
    """Return a function that changes one number in a batch's header, and corrects the CRC."""

    def lie(batch: bytearray, rng: random.Random) -> None:
        value = int.from_bytes(batch[at : at + size], "big", signed=True)
        batch[at : at + size] = change(value, rng).to_bytes(size, "big", signed=True)
        if at >= CRC_COVERS_FROM:
            batch[CRC_AT:CRC_COVERS_FROM] = crc32c(batch[CRC_COVERS_FROM:]).to_bytes(4, "big")

    return lie


def _wrong_crc(batch: bytearray, _rng: random.Random) -> None:
    batch[CRC_AT] ^= 1


Lie = Callable[[bytearray, random.Random], None]
_old = _patched(MAX_TIMESTAMP_AT, 8, lambda newest_ms, _: newest_ms - YEAR_MS)
LIES: tuple[Lie, ...] = (
    _old,
    _old,
    _patched(MAX_TIMESTAMP_AT, 8, lambda _, rng: rng.choice([-1, 0])),
    _patched(ATTRIBUTES_AT, 2, lambda bits, _: bits | APPEND_TIME_BIT),
    _patched(LAST_OFFSET_DELTA_AT, 4, lambda delta, rng: delta + rng.choice([-1, 1])),
    _patched(COUNT_AT, 4, lambda count, rng: count + rng.choice([-1, 1, 3])),
    _patched(0, 8, lambda _, rng: rng.randint(1, 9)),  # the base offset
    # the leader epoch is ignored, since the leader sets its own
    _patched(12, 4, lambda _, rng: rng.randint(-1, 99)),
    _wrong_crc,
)
