"""The rows in which the audit returns violations.

The columns are anomaly, replica (-1 for data that was read from the leader), topic, partition,
offset, producer_id (-1 for no producer) and sentence.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..judge.log_anomalies import LogAnomaly
from .pieces import COPY

VIOLATION = ("anomaly", *COPY, "offset", "producer_id", "sentence")


def violations(
    rows: DataFrame,
    anomaly: LogAnomaly,
    offset: Column,
    sentence: Column,
    producer_id: Column | None = None,
) -> DataFrame:
    """Turn each row into a violation of this anomaly. The rows must have the columns of COPY."""
    return rows.select(
        F.lit(anomaly.name).alias("anomaly"),
        *COPY,
        offset.alias("offset"),
        (F.lit(-1).cast("long") if producer_id is None else producer_id).alias("producer_id"),
        sentence.alias("sentence"),
    )
