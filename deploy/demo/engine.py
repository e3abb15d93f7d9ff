"""What the demo asks of whatever stands between its topics: two plain workers, or a Spark job.

An engine reads the flights, writes enriched flights and sums, and can be struck. The demo starts
it, strikes it and the cluster, waits until it has done everything, and judges what it wrote.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..cluster.failure import Failure
from ..faults.process_output import Heard

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


def failover_ms(
    processes: Heard,
    when: Callable[[], Iterable[float | None]],
    from_s: float,
    timeout_s: float,
    missing: str,
) -> float:
    """Milliseconds until everybody committed again; Failure(missing) when somebody does not."""
    if not processes.wait(lambda: None not in when(), timeout_s):
        raise Failure(missing)
    return (max((at for at in when() if at), default=from_s) - from_s) * 1000


Engine: TypeAlias = "WorkerEngine | SparkEngine"
