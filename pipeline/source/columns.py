"""The columns of `format("oncelog")`, those of Spark's Kafka source, and raw columns for audits.

The file does no I/O. The schemas are Spark's DDL, so a program may print them. `headers` is the
last column, and only if it was requested, as in Spark's own source. The schemas are fixed, because
rows are filled by position, and a schema of the user could exchange key and value. Times are
timestamp_ltz, since the meaning of `timestamp` depends on the session.
"""

from typing import TYPE_CHECKING

from .options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS = "headers array<struct<key: string, value: binary>>"
PLAIN = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp_ltz, "
    "timestampType int"
)
RAW = (
    "topic string, partition int, offset long, leader_epoch int, timestamp timestamp_ltz, "
    "timestamp_type int, producer_id long, producer_epoch int, sequence int, "
    "is_transactional boolean, is_control boolean, control_type string, coordinator_epoch int, "
    f"batch_crc long, key binary, value binary, {HEADERS}, replica int"
)


def schema_of(*, raw: bool, headers: bool) -> str:
    if raw:
        return RAW
    return f"{PLAIN}, {HEADERS}" if headers else PLAIN


def refuse_other(given: "StructType", columns: str) -> None:
    """Raise OptionError if the user gave a schema with other columns than these."""
    said = columns.replace(": ", ":").replace(", ", ",").replace(" ", ":")
    for written, named in (("long", "bigint"), ("timestamp_ltz", "timestamp")):
        said = said.replace(f":{written}", f":{named}")
    if given.simpleString() != f"struct<{said}>":
        raise OptionError(
            f"the columns of this source are fixed: leave out .schema(...), they are {columns}"
        )
