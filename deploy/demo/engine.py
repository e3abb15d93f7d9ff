"""What the demo asks of whatever stands between its topics: two plain workers, or a Spark job.

An engine reads the flights, writes enriched flights and sums, and can be struck. The demo starts
it, strikes it and the cluster, waits until it has done everything, and judges what it wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .spark_engine import SparkEngine
    from .worker_engine import WorkerEngine

FAILOVER_TIMEOUT_S = 25.0


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault did, in words; how many transactions were open; how long until it went on."""

    what: str
    open_transactions: int
    failover_ms: float | None = None  # None: nothing was killed


@dataclass(frozen=True, slots=True)
class Account:
    """What an engine tells of its work at the end, for the report."""

    count: int
    words: str  # what was counted
    transactions: Mapping[str, int]  # state -> how many
    withheld: int = 0  # records of transactions that were not committed


Engine: TypeAlias = "WorkerEngine | SparkEngine"
