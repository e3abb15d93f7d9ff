"""Measures the cells of a grid (combinations of settings), each of them several times.

Each repetition goes through the whole grid, not cell by cell, so a machine that gets hot or busy
affects all cells.
"""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ...deploy.cluster.failure import Failure
from .target import BenchTarget


class Measurement(Protocol):
    """The result of measuring one cell once."""

    @property
    def per_s(self) -> float:
        """The rate by which measurements of a cell are compared."""
        ...

    @property
    def words(self) -> str: ...

    def as_json(self) -> dict[str, Any]: ...


CellT = TypeVar("CellT", bound=Any)  # a dataclass with a `name`
MeasurementT = TypeVar("MeasurementT", bound=Measurement)


@dataclass(slots=True)
class CellResult(Generic[CellT, MeasurementT]):
    cell: CellT
    repetitions: list[MeasurementT] = field(default_factory=list[MeasurementT])

    @property
    def middle(self) -> MeasurementT:
        """Return the repetition with the median rate. Single figures are quoted from it."""
        return sorted(self.repetitions, key=lambda r: r.per_s)[len(self.repetitions) // 2]

    def median(self, of: Callable[[MeasurementT], float | None]) -> float | None:
        """Return the median of a figure over the repetitions, or None if none of them has it."""
        values = [v for r in self.repetitions if (v := of(r)) is not None]
        return statistics.median(values) if values else None

    def as_json(self) -> dict[str, Any]:
        repetitions = [r.as_json() for r in self.repetitions]
        return {"cell": asdict(self.cell), "repetitions": repetitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(Generic[CellT, MeasurementT]):
    """The cells to measure, the number of repetitions, and the duration of each."""

    repetitions: int = 2
    seconds: float = 3.0

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.repetitions < 1:
            raise Failure("--seconds and --repetitions are above 0.", exit_code=2)

    @property
    def largest_factor(self) -> int:
        """The largest replication factor of the cells. The cluster must have as many nodes."""
        raise NotImplementedError

    def cells(self) -> list[CellT]:
        """Return all cells of the grid in order, without combinations that make no sense."""
        raise NotImplementedError

    def measure(self, target: BenchTarget, cell: CellT, repetition: int) -> MeasurementT:
        raise NotImplementedError

    def run(
        self, target: BenchTarget, say: Callable[[str], None]
    ) -> Sequence[CellResult[CellT, MeasurementT]]:
        """Measure every cell, or raise Failure when the cluster is too small for the grid."""
        nodes = len(target.admin.describe_cluster().brokers)
        if self.largest_factor > nodes:
            raise Failure(
                f"The cluster has {nodes} nodes; replication factor {self.largest_factor} does "
                "not fit. Give a smaller --rf."
            )
        results = [CellResult[CellT, MeasurementT](cell) for cell in self.cells()]
        total = len(results) * self.repetitions
        rounds = itertools.product(range(self.repetitions), results)
        for number, (repetition, result) in enumerate(rounds, 1):
            measured = self.measure(target, result.cell, repetition)
            result.repetitions.append(measured)
            say(f"{number}/{total}  {result.cell.name}: {measured.words}")
            target.drop_topics()
        return results
