"""Test that a range of offsets is read to its end, or an error reports the missing offsets."""

import itertools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NoReturn

import pytest

from oncelog.client import Admin, BlockingAdmin, BlockingProducer, connection
from oncelog.client.failures import LogTruncated
from oncelog.client.fetch import fetcher
from oncelog.client.fetch.epoch_queries import EpochEnd
from oncelog.client.fetch.state import RawBatch
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.source import kept_views
from oncelog.pipeline.source.offsets import DataLost, OffsetRange
from oncelog.pipeline.source.range_reader import RangeReader
from oncelog.wire.errors import RequestTimedOut

SMALL = {"max.partition.fetch.bytes": "100", "fetch.max.bytes": "100"}
_numbers = itertools.count()


def refuse(loss: str) -> NoReturn:
    raise DataLost(loss)


@pytest.fixture
def topic(cluster: Cluster, admin: BlockingAdmin) -> str:
    """Create a topic with four transactions of 10 records. Abort the second (values 10 to 19)."""
    name = f"range-{next(_numbers)}"
    admin.create_topic(name, partitions=1)
    with BlockingProducer(cluster.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send_many(name, [b"%d" % (number * 10 + i) for i in range(10)])
            producer.flush()
            (producer.abort_transaction if number == 1 else producer.commit_transaction)()
    return name


async def topic_id_of(admin: Admin, topic: str) -> str:
    return (await admin.view.refresh([topic])).topic_ids[topic].hex()


def read(
    cluster: Cluster,
    topic: str,
    start: int,
    end: int,
    *,
    topic_id: str = "",
    report: Callable[[str], None] = refuse,
    client: Mapping[str, str] = MappingProxyType({}),
) -> list[RawBatch]:
    config = {"bootstrap.servers": cluster.bootstrap, **client}
    wanted = OffsetRange(topic, 0, start, end, topic_id)
    with RangeReader(config, wanted, is_committed=True, report=report) as reader:
        return [batch for found in reader for batch in found]


def test_range_reader_returns_whole_batches_and_marks_aborted_batches(
    cluster: Cluster, topic: str
) -> None:
    batches = read(cluster, topic, 0, 44)
    assert [b.header.base_offset for b in batches] == [0, 10, 11, 21, 22, 32, 33, 43]
    assert [b.header.base_offset for b in batches if b.is_aborted] == [11, 21]
    inner = read(cluster, topic, 15, 25)
    assert [b.header.base_offset for b in inner] == [11, 21, 22], "no batch beyond the range"
    assert read(cluster, topic, 12, 12) == []


def test_range_reader_with_small_fetches_returns_the_same_batches(
    cluster: Cluster, topic: str
) -> None:
    whole = read(cluster, topic, 3, 40)
    assert [b.header for b in read(cluster, topic, 3, 40, client=SMALL)] == [
        b.header for b in whole
    ]


def test_range_reader_reports_records_removed_meanwhile(
    cluster: Cluster, topic: str, admin: BlockingAdmin
) -> None:
    admin.delete_records(topic, 0, 25)
    with pytest.raises(DataLost, match=f"{topic}/0: offsets 15 to 24 were removed while"):
        read(cluster, topic, 15, 40)
    losses: list[str] = []
    found = read(cluster, topic, 15, 40, report=losses.append)
    assert [b.header.base_offset for b in found] == [22, 32, 33]
    assert len(losses) == 1
    assert read(cluster, topic, 5, 20, report=losses.append) == []


def test_range_reader_refuses_a_recreated_topic(cluster: Cluster, topic: str) -> None:
    with pytest.raises(DataLost, match=f"topic {topic} was deleted and made anew while"):
        read(cluster, topic, 0, 44, topic_id="ab" * 16)


@pytest.fixture(params=["by id", "by name"])
def _fetches_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fetch by topic id or, as from a broker before KIP-516, by name, with no kept client."""
    if request.param == "by name":
        monkeypatch.setitem(connection.SPOKEN, fetcher.FETCH, (4, fetcher.BY_NAME_NEWEST))
    monkeypatch.setattr(kept_views, "_kept", made := kept_views.KeptViews())
    yield
    made.close()


@pytest.mark.usefixtures("_fetches_by")
def test_range_reader_with_a_kept_client_refuses_a_recreated_topic(
    cluster: Cluster, topic: str, admin: BlockingAdmin
) -> None:
    topic_id = admin.run(lambda a: topic_id_of(a, topic))
    config = {"bootstrap.servers": cluster.bootstrap}

    def first(wanted_id: str) -> list[RawBatch]:
        wanted = OffsetRange(topic, 0, 0, 44, wanted_id)
        with RangeReader(config, wanted, is_committed=True, report=refuse) as reader:
            return [batch for found in reader for batch in found]

    assert len(first(topic_id)) == 8
    admin.delete_topics([topic])
    admin.create_topic(topic, partitions=1)
    with BlockingProducer(cluster.bootstrap) as producer:
        producer.send_many(topic, [b"another one"] * 100)
    with pytest.raises(DataLost, match=f"topic {topic} was deleted and made anew while"):
        first(topic_id)
    assert first(admin.run(lambda a: topic_id_of(a, topic)))


@pytest.mark.usefixtures("_fetches_by")
def test_range_reader_stops_when_its_topic_is_recreated_midway(
    cluster: Cluster, topic: str, admin: BlockingAdmin
) -> None:
    topic_id = admin.run(lambda a: topic_id_of(a, topic))
    config = {"bootstrap.servers": cluster.bootstrap, **SMALL}
    wanted = OffsetRange(topic, 0, 0, 44, topic_id)
    with RangeReader(config, wanted, is_committed=True, report=refuse) as reader:
        batches = iter(reader)
        assert next(batches)[0].header.base_offset == 0
        admin.delete_topics([topic])
        admin.create_topic(topic, partitions=1)
        with BlockingProducer(cluster.bootstrap) as producer:
            producer.send_many(topic, [b"another one"] * 100)
        with pytest.raises(DataLost, match=f"topic {topic} was deleted and made anew while"):
            list(batches)


def test_range_reader_of_a_log_truncated_by_a_new_leader_fails_without_waiting(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unclean election the task must not read on in the new leader's log, so Spark repeats
    it.
    """

    async def ends_before(_: Any, __: int, asked: Mapping[Any, Any]) -> dict[Any, EpochEnd]:
        return dict.fromkeys(asked, EpochEnd(0, 0, 5))

    monkeypatch.setattr(fetcher, "epoch_ends", ends_before)
    config = {"bootstrap.servers": cluster.bootstrap, **SMALL, "default.api.timeout.ms": "3000"}
    wanted = OffsetRange(topic, 0, 0, 44)
    with RangeReader(config, wanted, is_committed=True, report=refuse) as reader:
        batches = iter(reader)
        assert next(batches)[0].header.base_offset == 0
        partitions = reader._view.snapshot.partitions
        known = partitions[topic, 0]
        partitions[topic, 0] = replace(known, leader_epoch=known.leader_epoch + 1)
        with pytest.raises(LogTruncated, match=f"{topic}/0 .* the same records only up to 5 "):
            list(batches)


def test_range_reader_with_an_end_offset_never_reached_times_out_with_a_reason(
    cluster: Cluster, topic: str
) -> None:
    with pytest.raises(RequestTimedOut, match="no broker gave what stands at offset 44 for 1500"):
        read(cluster, topic, 33, 50, client={"default.api.timeout.ms": "1500"})


@pytest.fixture
def empty_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Container[int]], None]:
    """Return a function that removes all records from the Fetch answers with the given numbers.

    Slow remote storage also causes answers without records.
    """
    decode, numbers = fetcher.fetch.decode_response, itertools.count()

    def empty(which: Container[int]) -> None:
        def answer(body: Any, version: int) -> Any:
            response = decode(body, version)
            for topic in response.topics:
                for each in topic.partitions:
                    if next(numbers) in which:
                        each.records = b""
            return response

        monkeypatch.setattr(fetcher.fetch, "decode_response", answer)

    return empty


def test_range_reader_continues_after_answers_without_records(
    cluster: Cluster, topic: str, empty_answers: Callable[[Container[int]], None]
) -> None:
    empty_answers(range(2, 12))
    batches = read(cluster, topic, 0, 44, client=SMALL)
    assert [b.header.base_offset for b in batches] == [0, 10, 11, 21, 22, 32, 33, 43]


def test_range_reader_of_a_broker_without_records_times_out_with_a_reason(
    cluster: Cluster, topic: str, empty_answers: Callable[[Container[int]], None]
) -> None:
    empty_answers(range(2, 10_000))
    words = r"at offset 11 for 1500 ms.*\d+ answers held no.*cleanup.policy is delete,"
    losses: list[str] = []
    with pytest.raises(RequestTimedOut, match=words):
        read(
            cluster,
            topic,
            0,
            44,
            report=losses.append,
            client={**SMALL, "default.api.timeout.ms": "1500"},
        )
    assert losses == []


def test_range_reader_accepts_a_gap_at_the_end_of_a_compacted_log(
    cluster: Cluster,
    topic: str,
    admin: BlockingAdmin,
    empty_answers: Callable[[Container[int]], None],
) -> None:
    admin.alter_configs(topic, {"cleanup.policy": "compact"})
    empty_answers(range(2, 10_000))
    batches = read(cluster, topic, 0, 44, client=SMALL)
    assert [b.header.base_offset for b in batches] == [0, 10]
