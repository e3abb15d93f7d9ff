"""Test the clients that a Python worker keeps from task to task.

They save requests, and clients with different settings are kept apart.
"""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.client.settings import consumer_settings, hidden_secrets
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.source import kept_views as module
from oncelog.pipeline.source.data_source import StreamReader
from oncelog.pipeline.source.kept_views import KeptViews
from oncelog.pipeline.source.offsets import OffsetRange
from oncelog.pipeline.source.options import read_options
from oncelog.pipeline.source.range_reader import RangeReader

from ...programs import run_to_end
from ..counting_proxy import CountingProxy, counted_broker

PARTITIONS = 3
SCHEMA = StructType()  # of plain rows
for _name, _type in {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "offset": LongType(), "timestamp": TimestampType(), "timestampType": IntegerType(),
}.items():  # fmt: skip
    SCHEMA.add(_name, _type)
FORKED = """
import os, sys
from oncelog.pipeline.source.kept_views import kept_views
from oncelog.pipeline.source.offsets import OffsetRange
from oncelog.pipeline.source.range_reader import RangeReader
def count():
    wanted = OffsetRange("forked", 0, 0, 20)
    config = {"bootstrap.servers": sys.argv[1]}
    with RangeReader(config, wanted, is_committed=True, report=print) as reader:
        return sum(len(found) for found in reader)
count()
mine = kept_views()
child = os.fork()
if not child:
    assert kept_views() is not mine
    os._exit(0 if count() and count() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert kept_views() is mine and count()
print("both read")
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[CountingProxy]:
    with counted_broker() as proxy:
        with BlockingAdmin(proxy.bootstrap) as admin:
            admin.create_topic("counted", partitions=PARTITIONS)
        yield proxy


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptViews]:
    """Run the test as in a new process, in which no client is kept yet."""
    monkeypatch.setattr(module, "_kept", made := KeptViews())
    yield made
    made.close()


def put(producer: BlockingProducer) -> None:
    for partition in range(PARTITIONS):
        producer.send_many("counted", [b"value"] * 10, partition=partition)
    producer.flush()


def counted(proxy: CountingProxy) -> tuple[int, dict[str, int]]:
    connections, requests = proxy.take()
    return connections, {api: n for api, n in requests.items() if api != "Produce"}


def test_stream_trigger_repeats_no_request_and_a_range_with_a_kept_client_only_fetches(
    proxy: CountingProxy, kept: KeptViews
) -> None:
    options = {"kafka.bootstrap.servers": proxy.bootstrap, "subscribe": "counted"}
    reader = StreamReader(
        read_options({**options, "startingOffsets": "earliest"}, is_streaming=True),
        SCHEMA,
    )

    def trigger(start: dict[str, Any]) -> tuple[dict[str, Any], int]:
        end = reader.latestOffset(start, ReadAllAvailable())
        return end, sum(
            rows.num_rows for p in reader.partitions(start, end) for rows in reader.read(p)
        )

    with BlockingProducer(proxy.bootstrap) as producer:
        put(producer)
        proxy.take()
        place, count = trigger(reader.initialOffset())
        assert count == PARTITIONS * 10
        asked = {"Metadata": 1, "ListOffsets": 2}
        connections, requests = counted(proxy)
        assert connections == 3, "one to plan; to read, one to ask and one to fetch"
        assert requests == {  # of the Metadata one, once, is whether any broker answers
            "ApiVersions": 3, "Fetch": PARTITIONS, "ListOffsets": 2, "Metadata": 3
        }  # fmt: skip
        for _ in range(2):
            put(producer)
            place, count = trigger(place)
            assert count == PARTITIONS * 10
            assert counted(proxy) == (0, {**asked, "Fetch": PARTITIONS})
    assert trigger(place) == (place, 0)
    assert counted(proxy) == (0, asked)
    reader.stop()


def test_range_reader_abandoned_midway_leaves_no_records_to_the_next_reader(
    proxy: CountingProxy, kept: KeptViews
) -> None:
    with BlockingProducer(proxy.bootstrap) as producer:
        put(producer)
        put(producer)
    config = {"bootstrap.servers": proxy.bootstrap, "max.partition.fetch.bytes": "100"}
    wanted = OffsetRange("counted", 0, 0, 20)
    for _ in range(2):
        proxy.take()
        with RangeReader(config, wanted, is_committed=True, report=print) as reader:
            assert next(iter(reader))
        assert counted(proxy)[0] == 2


def test_kept_client_in_a_forked_worker_is_replaced_by_a_new_one(
    cluster: Cluster, admin: BlockingAdmin
) -> None:
    admin.create_topic("forked", partitions=1)
    with BlockingProducer(cluster.bootstrap) as producer:
        producer.send_many("forked", [b"value"] * 20)
    done = run_to_end([sys.executable, "-c", FORKED, cluster.bootstrap])
    assert done.stdout.strip() == "both read", done.stderr[-2000:]


# --- without a cluster


class View:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def lent(*, most: int = 4, idle_s: float = 60.0) -> KeptViews:
    return KeptViews(lambda settings: View(), most=most, idle_s=idle_s)  # type: ignore[return-value]


def settings(**given: str) -> Any:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return consumer_settings(hidden_secrets({"bootstrap.servers": "h:1", **named}), {})


@pytest.mark.parametrize(
    "other",
    [
        {"bootstrap_servers": "h:2"},
        {"client_id": "another"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_password": "another"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "another"},
    ],
)
async def test_kept_clients_with_different_settings_or_credentials_are_not_shared(
    other: dict[str, str],
) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secret"}

    views = lent()
    kind = other.get("security_protocol", "PLAINTEXT")
    mine = settings(**({**login, "security_protocol": kind} if kind != "PLAINTEXT" else {}))
    theirs = settings(**({**login, **other} if kind != "PLAINTEXT" else other))
    first = await views.take(mine)
    await views.give_back(mine, first, is_sound=True)
    assert await views.take(theirs) is not first
    assert await views.take(mine) is first
    assert await views.take(mine) is not first, "one reader at a time"


async def test_kept_clients_are_bounded_in_number_and_idle_time() -> None:
    views = lent(most=2, idle_s=0.05)
    taken = [(s, await views.take(s)) for s in (settings(client_id=f"c{n}") for n in range(3))]
    for each, view in taken:
        await views.give_back(each, view, is_sound=True)
    closed = [view.is_closed for _, view in taken]  # type: ignore[attr-defined]
    assert closed == [True, False, False], "the oldest goes"
    each, view = taken[2]
    assert await views.take(each) is view
    await asyncio.sleep(0.1)
    assert [v.is_closed for _, v in taken] == [True, True, False]  # type: ignore[attr-defined]
    await views.give_back(each, view, is_sound=False)
    assert view.is_closed  # type: ignore[attr-defined]
    assert await views.take(each) is not view
