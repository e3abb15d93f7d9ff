"""Networks of the stock library that close their files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .stock import StockNetwork


@pytest.fixture
def stock_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StockNetwork]]:
    """Yield a maker of stock networks (see `StockNetwork`), and end them with the test."""
    made: list[StockNetwork] = []

    def make(seed: int, **options) -> StockNetwork:
        made.append(StockNetwork(monkeypatch, seed, **options))
        return made[-1]

    yield make
    for network in made:
        network.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield a directory with a name short enough for a socket's (107 bytes in all)."""
    with TemporaryDirectory(prefix="raft-", dir="/tmp") as directory:
        yield Path(directory)
