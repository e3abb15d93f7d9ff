"""Test a stream on a cluster that omits a partition from its metadata for a while."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from oncelog.pipeline.source import data_source
from oncelog.pipeline.source.data_source import Piece, StreamReader
from oncelog.pipeline.source.offsets import DataLost, Known, LogBounds, OffsetRange, Position
from oncelog.pipeline.source.options import read_options

BOTH = Known({("a", 0): LogBounds(0, 10), ("b", 0): LogBounds(0, 20)}, {"a": "aa", "b": "bb"})
GROWN = Known({("a", 0): LogBounds(0, 12), ("b", 0): LogBounds(0, 20)}, {"a": "aa", "b": "bb"})
STALE = Known({("a", 0): LogBounds(0, 12)}, {"a": "aa"})
START = Position({("a", 0): 10, ("b", 0): 15}, {"a": "aa", "b": "bb"}).to_json()


class Lookup:
    """A cluster lookup that returns these answers in turn, and the last one forever."""

    def __init__(self, *answers: Known) -> None:
        self.answers, self.asked = list(answers), 0

    def known(self, *, must_exist: bool = True) -> Known:
        assert not must_exist, "a topic that is gone is not one that was never made"
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_source, "METADATA_TIMEOUT_S", 1.0)


def reader(lookup: Lookup, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "a|b", **options}
    made = StreamReader(read_options(given, is_streaming=True), StructType())
    made._lookup = lookup  # type: ignore[assignment]
    return made


def latest(stream: StreamReader, start: dict) -> dict:
    return stream.latestOffset(start, ReadAllAvailable())


def ranges(stream: StreamReader, start: dict, end: dict) -> list[OffsetRange | object]:
    found = stream.partitions(start, end)
    return [piece.what for piece in found if isinstance(piece, Piece)]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_streaming_query_with_outdated_metadata_waits_for_the_partition(fails: str) -> None:
    stream = reader(Lookup(STALE, STALE, BOTH, STALE, BOTH), failOnDataLoss=fails)
    end = latest(stream, START)
    assert Position.from_json(end).offsets == {("a", 0): 10, ("b", 0): 20}
    assert ranges(stream, START, end) == [OffsetRange("b", 0, 15, 20, "bb")]


def test_streaming_query_with_a_partition_missing_for_long_stops() -> None:
    with pytest.raises(DataLost, match="b/0 was being read and is no longer there"):
        latest(reader(Lookup(STALE)), START)


def test_streaming_query_partition_that_returns_late_is_read_from_its_offset() -> None:
    lookup = Lookup(STALE)
    stream = reader(lookup, failOnDataLoss="false")
    first = latest(stream, START)
    assert Position.from_json(first).offsets == {("a", 0): 12, ("b", 0): 15}
    assert ranges(stream, START, first) == [OffsetRange("a", 0, 10, 12, "aa")]
    asked = lookup.asked
    assert latest(stream, first) == first
    assert lookup.asked == asked + 1, "it was waited for once"
    stream._lookup = Lookup(GROWN)  # type: ignore[assignment]
    second = latest(stream, first)
    assert ranges(stream, first, second) == [OffsetRange("b", 0, 15, 20, "bb")]
