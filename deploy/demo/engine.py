"""What the demo asks of whatever stands between its topics: two plain workers, or a Spark job.

An engine reads the flights, writes enriched flights and sums, and can be struck. The demo starts
it, strikes it and the cluster, waits until it has done everything, and judges what it wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .fault_plan import Fault
from .output_judge import Inputs, OutputVerdict, Records

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


class Engine(Protocol):
    """See the top of the file."""

    @property
    def name(self) -> str:
        """As in `--engine`."""
        ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """The faults that are its own, of fault_plan.py."""
        ...

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of its own, which are there when it is at work."""
        ...

    @property
    def restarts(self) -> int:
        """How often a process of it ended by itself, and was started again."""
        ...

    @property
    def sums_by(self) -> str:
        """What a sum is told from another by, in words."""
        ...

    @property
    def horizon_s(self) -> float:
        """How long the faults take, roughly: so long the flights have to last."""
        ...

    @property
    def drain_timeout_s(self) -> float:
        """How long it may take to do what is left after the faults."""
        ...

    def start(self) -> None:
        """Return when it would read flights if there were any."""
        ...

    def wait_until_at_work(self) -> str | None:
        """Return when it is in its stride; else what is missing, in words."""
        ...

    def check(self) -> None:
        """Raise what has stopped it for good."""
        ...

    def open_transactions(self) -> int:
        """How many it has open now."""
        ...

    def inflict(self, fault: Fault) -> Effect:
        """One of its own faults."""
        ...

    def done(self) -> Mapping[int, int]:
        """By partition of the flights: the offset up to which everything is done and committed."""
        ...

    def outputs(self) -> int:
        """How many flights it has enriched so far, as far as it has told."""
        ...

    def stop(self) -> None:
        """Let it end what it has begun, and end."""
        ...

    def close(self) -> None:
        """Leave no process behind, whatever happened."""
        ...

    def remove_logs(self) -> None:
        """Leave no file behind, when nobody needs to read them."""
        ...

    def judge(self, inputs: Inputs, enriched: Records, sums: Records) -> OutputVerdict:
        """Judge what it wrote, read back under read_committed."""
        ...

    def expected_sums(self, rows: int) -> Mapping[tuple[str | int, ...], tuple[int, ...]]:
        """The last sums, computed from the CSV alone."""
        ...

    def account(self) -> Account: ...
