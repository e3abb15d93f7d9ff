"""Test the flights as DataFrames, parsed, enriched and summed, against the csv module."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from oncelog.pipeline.jobs import flight_frames
from oncelog.proof.demo import flights, window_sums
from oncelog.proof.demo.enrichment import Flight, added, take_apart

COLUMNS = "key binary, value binary, topic string, partition int, offset long"
PARTITIONS = 6


def records(spark, values):
    rows = [(b"k", value, "flights", n % PARTITIONS, n // PARTITIONS) for n, value in values]
    return spark.createDataFrame(rows, COLUMNS)


@pytest.fixture(scope="module")
def parsed(spark, tmp_path_factory):
    """Return all flights as a DataFrame, with the offsets of a topic of six partitions."""
    made = [flights.record(row, line) for row, line in enumerate(flights.lines())]
    places = range(len(made))
    table = pa.table({
        "key": [key for key, _ in made],
        "value": [value for _, value in made],
        "topic": ["flights"] * len(made),
        "partition": pa.array([n % PARTITIONS for n in places], pa.int32()),
        "offset": pa.array([n // PARTITIONS for n in places], pa.int64()),
    })  # fmt: skip
    file = tmp_path_factory.mktemp("flights") / "flights.parquet"
    parquet.write_table(table, file)
    return flight_frames.parse(spark.read.parquet(str(file)))


@pytest.mark.in_turn
def test_flight_delay_sums_by_spark_equal_those_of_the_csv_file(parsed):
    sums = flight_frames.sum_records(flight_frames.delay_sums(parsed, "month"))
    found = dict(window_sums.read_sum(bytes(r["key"]), bytes(r["value"])) for r in sums.collect())
    expected = window_sums.sums_of_csv()
    assert len(expected) == 399
    assert found == expected


def test_flight_enriched_by_spark_appears_once_with_its_input_offset(spark, parsed):
    airlines = flights.airlines()
    made = flight_frames.enrich(parsed.where("offset % 50 = 0"), airlines, "spark").collect()
    lines = flights.lines()
    assert len(made) == len({bytes(row["value"]).split(b"\t")[0] for row in made}) > 6_000
    for row in made:
        one = take_apart(bytes(row["value"]))
        number = one.offset * PARTITIONS + one.partition
        key, value = flights.record(number, lines[number])
        assert (bytes(row["key"]), one.flight, row["partition"]) == (key, value, one.partition)
        assert one.transaction == "spark"
        assert one.added == added(Flight.of(value), airlines)


def test_flight_value_that_is_malformed_is_enriched_as_unknown_and_not_summed(spark):
    values = [b"junk", b"", b"1,2013,13,1" + b"," * 15, b"2,2013,2,30,,,,,,5,UA,,,EWR,,10,100,,,"]
    parsed = flight_frames.parse(records(spark, enumerate(values)))
    made = [take_apart(bytes(row["value"])) for row in
            flight_frames.enrich(parsed, {"UA": "United"}, "x").collect()]  # fmt: skip
    assert [one.flight for one in made] == values
    assert [one.added for one in made] == [b"NA\tNA", b"NA\tNA", b"\tNA", b"United\t600"]
    assert flight_frames.delay_sums(parsed, "month").count() == 0


@pytest.mark.parametrize(
    ("window", "begins"),
    [("day", "2013-05-16"), ("week", "2013-05-13"), ("month", "2013-05-01"),
     ("quarter", "2013-04-01"), ("year", "2013-01-01")],
)  # fmt: skip
def test_flight_window_of_each_length_begins_at_its_calendar_day(spark, window, begins):
    value = b"7,2013,5,16,,,,,,NA,UA,1,N1,EWR,ORD,60,600,,,"
    parsed = flight_frames.parse(records(spark, [(0, value)]))
    (row,) = flight_frames.sum_records(flight_frames.delay_sums(parsed, window)).collect()
    assert bytes(row["key"]).decode() == f"EWR/UA/{begins}"
    sums = {"flights": 1, "arrivals": 0, "minutes": 0, "miles": 600}
    assert json.loads(bytes(row["value"])) == sums
