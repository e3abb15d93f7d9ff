"""The columns of `format("oncelog")`: those of Spark's Kafka source, and the raw ones for audits.

Pure. The schemas are written as Spark's DDL, so that a program may print them; `headers` stands
last in the plain form and only when it was asked for, as in Spark's own source.
"""

HEADERS = "headers array<struct<key: string, value: binary>>"
PLAIN = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int"
)
RAW = (
    "topic string, partition int, offset long, leader_epoch int, timestamp timestamp, "
    "timestamp_type int, producer_id long, producer_epoch int, sequence int, "
    "is_transactional boolean, is_control boolean, control_type string, coordinator_epoch int, "
    f"batch_crc long, key binary, value binary, {HEADERS}, replica int"
)


def schema_of(*, raw: bool, headers: bool) -> str:
    if raw:
        return RAW
    return f"{PLAIN}, {HEADERS}" if headers else PLAIN
