"""Flights as DataFrames, which are parsed, enriched one to one, and summed by windows.

The file does no I/O. Its functions take and return DataFrames, of batches and of streams. A
record's value is the row number, a comma, and the line of the CSV (`year,month,day,dep_time,...`).
A value that is no flight is enriched like any other, with unknown fields, so that every input has
its output.

The enriched form is the same as that of the demo's plain workers, with five fields separated by
tabs:

    partition@offset   the position of its input
    written by         a name
    flight             the input's value, unchanged
    airline            the carrier's name, or its code if the name is unknown
    mph                whole miles per hour in the air, NA if unknown

A delay sum has the key ORIGIN/CARRIER/WINDOW and a JSON object as its value, with flights, arrivals
(those with a known delay), minutes of arrival delay, and miles. Windows are calendar windows, by
the day of departure, since months have different lengths. A running sum is written whenever it
changes, so the newest record of a key is the current sum.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOWS = ("day", "week", "month", "quarter", "year")
NOT_KNOWN = "NA"
SUM_KEYS = ("origin", "carrier", "window")
_FIELDS = {"year": 1, "month": 2, "day": 3, "arr_delay": 9, "air_time": 15, "distance": 16}
_NAMES = {"carrier": 10, "origin": 13}
_FIELDS_LEAST = 17


def parse(records: DataFrame) -> DataFrame:
    """Parse records of the source (key, value, topic, partition, offset) into flights.

    The added columns are is_flight, carrier, origin, departed_on (date), arr_delay (minutes),
    air_time (minutes) and distance (miles), which are null if unknown.
    """
    fields = F.split(F.col("value").cast("string"), ",")
    is_flight = F.size(fields) >= _FIELDS_LEAST
    numbers = {name: F.get(fields, F.lit(at)).try_cast("int") for name, at in _FIELDS.items()}
    names = {name: F.get(fields, F.lit(at)) for name, at in _NAMES.items()}
    return (
        records.withColumns({"is_flight": is_flight, **numbers, **names})
        .withColumn("departed_on", F.expr("try_to_date(concat_ws('-', year, month, day), 'y-M-d')"))
        .drop("year", "month", "day")
    )


def enrich(flights: DataFrame, airlines: Mapping[str, str], written_by: str) -> DataFrame:
    """Enrich parsed flights. Return one record (key, value, partition) for each.

    An output has the partition of its input, so the order is kept.
    """
    names = [F.lit(text) for pair in airlines.items() for text in pair]
    known = F.try_element_at(F.create_map(*names), F.col("carrier")) if names else F.lit(None)
    mph = F.expr("if(air_time > 0, distance * 60L div air_time, null)").cast("string")
    place = F.concat_ws("@", "partition", "offset")
    value = F.concat_ws(
        "\t",
        place,
        F.lit(written_by),
        F.col("value").cast("string"),
        F.coalesce(known, "carrier", F.lit(NOT_KNOWN)),
        F.coalesce(mph, F.lit(NOT_KNOWN)),
    )
    return flights.select("key", value.cast("binary").alias("value"), "partition")


def delay_sums(flights: DataFrame, window: str, late_by: str | None = None) -> DataFrame:
    """Sum parsed flights by origin, carrier and window (its first day).

    window: one of WINDOWS. late_by: a duration such as "40 days". With late_by, a stream drops
    windows that begin this long before the newest window, and flights that arrive later for such
    windows. Without late_by, every window is kept for ever, and every flight counts.
    """
    day = F.col("departed_on")
    begin = day if window == "day" else F.trunc(day, window)
    placed = flights.where("is_flight and departed_on is not null").withColumn("window", begin)
    if late_by is not None:
        placed = placed.withColumn("window", F.col("window").cast("timestamp"))
        placed = placed.withWatermark("window", late_by)
    return placed.groupBy(*SUM_KEYS).agg(
        F.count(F.lit(1)).alias("flights"),
        F.count("arr_delay").alias("arrivals"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("minutes"),
        F.coalesce(F.sum("distance"), F.lit(0)).alias("miles"),
    )


def sum_records(sums: DataFrame) -> DataFrame:
    """Return sums as records to produce, with key and value."""
    begin: Column = F.date_format("window", "yyyy-MM-dd")
    value = F.to_json(F.struct("flights", "arrivals", "minutes", "miles"))
    return sums.select(
        F.concat_ws("/", "origin", "carrier", begin).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )
