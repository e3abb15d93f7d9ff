"""The interface of the application that the demo tests: two plain workers, or a Spark job.

An engine reads the flights and writes enriched flights and sums. The demo starts the engine,
injects faults into it and into the cluster, waits until everything is processed, and judges the
outputs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.supervisor import Supervisor

FAILOVER_TIMEOUT_S = 25.0
Processes = TypeVar("Processes", bound=Supervisor)


class Effect(NamedTuple):
    """A fault's effect in words, the number of open transactions, and the time to resume."""

    what: str
    open_transactions: int
    failover_ms: float | None = None  # None: nothing was killed


@dataclass(frozen=True, slots=True)
class Account:
    """The counts that an engine reports at the end."""

    count: int
    words: str  # what was counted
    transactions: Mapping[str, int]  # state -> how many
    withheld: int = 0  # records of transactions that were not committed


class EngineProcesses(Generic[Processes]):
    """The base class of the engines, with their supervised processes."""

    failover_timeout_s = FAILOVER_TIMEOUT_S

    def __init__(self, cluster: Cluster, processes: Processes) -> None:
        self.cluster, self.processes = cluster, processes

    def stop(self) -> None:
        for name, code in self.processes.stop().items():
            if code is None:
                raise Failure(f"{name} does not end. Its log: {self.processes.log(name)}")

    def remove_files(self) -> None:
        """Remove the engine's logs, so that the cluster's directory is empty at the end."""
        self.processes.remove_logs()

    def failover_ms(
        self, when: Callable[[], Iterable[float | None]], from_s: float, missing: str
    ) -> float:
        """Wait until `when` returns a time for each process.

        Return the ms from `from_s` to the last of these times. Raises Failure at the timeout, with
        a sentence that begins with `missing`.
        """
        if not self.processes.wait(lambda: None not in when(), self.failover_timeout_s):
            raise Failure(
                f"{missing} committed anything for {self.failover_timeout_s:.0f} s after the "
                f"kill. Logs are under {self.cluster.data}."
            )
        return last_ms(when(), from_s)


def last_ms(times: Iterable[float | None], from_s: float) -> float:
    """Return the milliseconds from `from_s` to the last of these times, or 0 without a time."""
    return (max((at for at in times if at), default=from_s) - from_s) * 1000
