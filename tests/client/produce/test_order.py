"""Test that send_many and a loop of `send` give the same order of records in a partition.

The default run tries a few calls, and `--hypothesis-profile=exhaustive` tries 10,000.
"""

import asyncio
from collections.abc import Container, Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client import Producer
from oncelog.client.cluster_view import ClusterView, PartitionInfo
from oncelog.client.produce import columns, joined_rows
from oncelog.wire.errors import InvalidPartitions
from oncelog.wire.records import decode_batch

FEW_ENOUGH = 4  # rows, for the form of Arrow
FORMS = ["lists", "arrow"]
Sent = dict[int, list[tuple[Any, ...]]]


@pytest.fixture(scope="module", autouse=True)
def _few_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (columns, joined_rows):
            patch.setattr(module, "ROWS_LEAST", FEW_ENOUGH)
        yield


class Unsent:
    """A producer that knows a topic's partitions and sends no batch."""

    def __init__(self, partitions: int, leaderless: Container[int] = (), **config: Any) -> None:
        view = ClusterView("127.0.0.1:1")
        view.snapshot.partitions = {
            ("t", p): PartitionInfo(
                topic="t",
                partition=p,
                leader=-1 if p in leaderless else 1,
                leader_epoch=0,
                replicas=(1,),
                isr=(1,),
            )
            for p in range(partitions)
        }
        self.producer = Producer(view, **config)
        self.producer._sender.start = lambda: None  # type: ignore[method-assign]
        known = self.producer._lookup.known("t")
        assert known is not None
        known.sticky._current = 0  # random otherwise

    def one_by_one(self, call: list[dict[str, Any]]) -> None:
        for record in call:
            assert self.producer.try_send("t", **record) is not None

    async def in_columns(self, call: list[dict[str, Any]], has: set[str], form: str) -> None:
        """Send the records of a call as columns. `has` names the columns besides the value."""
        table: dict[str, Any] = {
            name: [record.get(name) for record in call] for name in ("value", "key", "headers")
        }
        if form == "arrow":
            import pyarrow as pa

            table |= {name: pa.array(table[name], pa.binary()) for name in ("value", "key")}
        partitions = [-1 if r["partition"] is None else r["partition"] for r in call]
        await self.producer.send_many(
            "t",
            table["value"],
            keys=table["key"] if "key" in has else None,
            partition=partitions if "partition" in has else None,
            headers=table["headers"] if "headers" in has else None,
            timestamp_ms=[r["timestamp_ms"] for r in call],
        )

    def sent(self) -> Sent:
        """Return the unsent records of each partition, in the order in which they would be sent."""
        found: Sent = {}
        batches = self.producer._batches
        while taken := batches.take(1 << 60):
            for batch in taken:
                found.setdefault(batch.partition, []).extend(
                    (r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in decode_batch(batch.builder.build())
                )
                batches.finish(batch, is_written=True)
        return found


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a topic, settings, and the records of several calls, with timestamps that count up."""
    partitions = draw(st.sampled_from([1, 2, 3, 7]))
    has = draw(st.sets(st.sampled_from(["key", "partition", "headers"])))
    record = st.fixed_dictionaries({
        "value": st.sampled_from([None, b"", b"x", b"y" * 30, b"z" * 200]),
        "key": st.sampled_from([None, None, b"", b"a", b"b", b"ab"]),
        "partition": st.none() | st.integers(0, partitions - 1),
        "headers": st.sampled_from([(), (("h", b"x"),), (("h", None), ("g", b"y" * 50))]),
    })  # fmt: skip
    defaults = {"key": None, "partition": None, "headers": ()}
    made: list[list[dict[str, Any]]] = []
    place = 0
    for _ in range(draw(st.integers(1, 3))):
        drawn = draw(st.lists(record, min_size=1, max_size=25)) * draw(st.integers(1, 4))
        kept = [{**r, **{n: d for n, d in defaults.items() if n not in has}} for r in drawn]
        made.append([{**r, "timestamp_ms": place + at} for at, r in enumerate(kept)])
        place += len(kept)
    return {
        "partitions": partitions,
        "leaderless": draw(st.sets(st.integers(0, partitions - 1), max_size=partitions)),
        "ignores_keys": draw(st.booleans()),
        "batch_size": draw(st.sampled_from([150, 600, 1 << 18])),
        "has": has,
        "calls": made,
    }


@pytest.mark.parametrize("form", FORMS)
@given(case=calls())
def test_send_many_orders_records_like_a_loop_of_sends(form: str, case: dict[str, Any]) -> None:
    """The partitions are also equal, unless a call may choose any partition and fills batches."""
    if form == "arrow":
        pytest.importorskip("numpy")
        pytest.importorskip("pyarrow.compute")
    ignores_keys = case["ignores_keys"]
    config = {"partitioner_ignore_keys": ignores_keys, "batch_size": case["batch_size"]}
    many, single = (Unsent(case["partitions"], case["leaderless"], **config) for _ in "ab")

    async def send_all() -> None:
        for call in case["calls"]:
            await many.in_columns(call, case["has"], form)
            single.one_by_one(call)

    asyncio.run(send_all())
    found, expected = many.sent(), single.sent()
    has_free_call = any(
        all(r["partition"] is None and (ignores_keys or r["key"] is None) for r in call)
        for call in case["calls"]
    )
    if case["partitions"] == 1 or not has_free_call:
        assert found == expected
    for records in found.values():
        assert [r[0] for r in records] == sorted(r[0] for r in records)
    assert sorted(map(repr, chain(*found.values()))) == sorted(map(repr, chain(*expected.values())))


@pytest.mark.parametrize("form", FORMS)
async def test_null_keys_among_keyed_records_keep_their_positions(form: str) -> None:
    unsent = Unsent(1)
    names = [b"insert", b"heartbeat", b"delete", b"a", b"b", b"c"]
    keys = [b"k", None, b"k", None, None, b""]
    call: list[dict[str, Any]] = [
        {"value": v, "key": k, "partition": None, "timestamp_ms": 0}
        for v, k in zip(names, keys, strict=True)
    ]
    await unsent.in_columns(call, {"key"}, form)
    assert [value for _, _, value, _ in unsent.sent()[0]] == names


@pytest.mark.parametrize("as_array", [False, True])
async def test_send_many_with_a_partition_below_minus_one_is_refused(as_array: bool) -> None:
    unsent = Unsent(2)
    partitions: Any = [0, -2, -1, 1, 0]
    if as_array:
        partitions = pytest.importorskip("numpy").array(partitions)
    with pytest.raises(InvalidPartitions, match=r"partitions 0\.\.1"):
        await unsent.producer.send_many("t", [b"v"] * 5, keys=[b"k"] * 5, partition=partitions)
    assert not unsent.sent()
    if as_array:
        assert partitions.tolist() == [0, -2, -1, 1, 0]  # the array is the caller's
