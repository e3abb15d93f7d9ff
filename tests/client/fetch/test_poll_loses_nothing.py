"""Test that polls return every record, even when a poll is interrupted."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client import Consumer
from oncelog.client.fetch.state import FetchState
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.errors import CorruptMessage
from oncelog.wire.record_batch import restamp

NOWHERE = "127.0.0.1:1"
POLLS: list[Callable[[Consumer], Any]] = [
    lambda consumer: consumer.poll(0),
    lambda consumer: consumer.poll_columns(0),
    lambda consumer: consumer.poll_batches(0),
]


def batch(offset: int, *, is_torn: bool = False) -> bytearray:
    builder = BatchBuilder()
    builder.append(1, None, b"value")
    made = builder.build()
    restamp(made, 0, offset, 0)
    made[-1] ^= is_torn
    return made


def load(consumer: Consumer, partition: int, *batches: bytearray) -> None:
    consumer._positions.states["t", partition].load(b"".join(batches), ())


@pytest.mark.parametrize("poll", POLLS)
async def test_poll_that_reaches_a_corrupt_batch_returns_the_records_before_it(
    poll: Callable[[Consumer], Any],
) -> None:
    async with Consumer(NOWHERE) as consumer:
        consumer.assign({("t", 0): 0, ("t", 1): 0})
        load(consumer, 0, batch(0), batch(1, is_torn=True))
        assert len(await poll(consumer)) == 1
        assert consumer.position("t", 0) == 1
        load(consumer, 0, batch(1, is_torn=True))  # it was dropped, and is fetched again
        with pytest.raises(CorruptMessage):
            await poll(consumer)
        assert consumer.position("t", 0) == 1
        load(consumer, 1, batch(0))
        assert len(await poll(consumer)) == 1


@pytest.mark.parametrize("poll", POLLS)
async def test_poll_cancelled_at_its_end_leaves_its_records_to_the_next_poll(
    poll: Callable[[Consumer], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(NOWHERE) as consumer:
        consumer.assign({("t", 0): 0})
        load(consumer, 0, batch(0))
        taken = consumer._fetcher.start

        def cancelled_now(states: Any) -> None:
            taken(states)
            polling.cancel()

        monkeypatch.setattr(consumer._fetcher, "start", cancelled_now)
        polling = asyncio.ensure_future(poll(consumer))
        with pytest.raises(asyncio.CancelledError):
            await polling
        monkeypatch.undo()
        assert consumer.position("t", 0) == 0
        assert len(await poll(consumer)) == 1


@pytest.mark.parametrize("poll", POLLS)
async def test_poll_of_many_tiny_batches_ends_at_its_time_limit_with_the_records_so_far(
    poll: Callable[[Consumer], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a record from a batch of its own takes a hundred times as long as from a large batch.

    Ten thousand such batches take half a second.
    """
    now_ms = 0

    def later() -> int:
        nonlocal now_ms
        now_ms += 5
        return now_ms

    async with Consumer(NOWHERE) as consumer:
        consumer.assign({("t", 0): 0})
        load(consumer, 0, *map(batch, range(100)))
        monkeypatch.setattr("oncelog.client.fetch.taking.now_ms", later)
        given = [len(await poll(consumer)) for _ in range(40)]
        assert sum(given) == 100 and 1 <= max(given) <= 10
        assert consumer.position("t", 0) == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["poll", "columns", "raw", "back", "load"]), st.integers(1, 5))
    )
)
def test_fetch_state_reset_to_a_mark_returns_the_same_records_again(
    steps: list[tuple[str, int]],
) -> None:
    """The batches are those of three producers, one of which aborts, and a poll may split them."""
    loaded = 0
    state = FetchState("t", 0, 0)
    found: list[int] = []
    mark, kept = state.mark(), 0
    for step, number in [*steps, *[("load", 1)] * 3, *[("poll", 100)] * 40]:
        if step == "back":
            state.back_to(mark)
            del found[kept:]
            continue
        if step == "load":
            if loaded < 24:
                state.load(b"".join(answer(loaded)), [(2, loaded)])
                loaded += 8
            continue
        mark, kept = state.mark(), len(found)
        if step == "poll":
            found += [r.offset for r in state.take(number, read_committed=True)]
        elif step == "columns":
            columns = state.take_columns(read_committed=True)
            found += [] if columns is None else list(columns.offsets)
        else:
            raw = state.take_raw()
            if raw is not None and not (raw.header.is_control or raw.is_aborted):
                found += [o for o in raw.columns().offsets if o >= mark.position]
    assert found == [at + offset for at in range(0, loaded, 8) for offset in (0, 1, 2, 6, 7)]


def answer(first: int) -> list[bytearray]:
    """Return a fetched answer: a batch of 3 records, 2 aborted records with their marker, and 2
    records.
    """
    made: list[bytearray] = []
    for offset, producer_id, count in ((0, 1, 3), (3, 2, 2), (6, 3, 2)):
        builder = BatchBuilder()
        for _ in range(count):
            builder.append(1, None, b"v")
        encoded = builder.build(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=producer_id == 2,
        )
        restamp(encoded, 0, first + offset, 0)
        made.append(encoded)
    marker = bytearray(
        encode_marker(
            ControlType.ABORT,
            producer_id=2,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=1,
        )
    )
    restamp(marker, 0, first + 5, 0)
    return [*made[:2], marker, made[2]]
