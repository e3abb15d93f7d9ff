"""Fixtures for networks of unmodified PySyncObj, and for a directory with a short name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .stock import StockNetwork


@pytest.fixture
def stock_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StockNetwork]]:
    """Return a function that makes a StockNetwork, which is closed at the end of the test."""
    made: list[StockNetwork] = []

    def make(seed: int, **options) -> StockNetwork:
        made.append(StockNetwork(monkeypatch, seed, **options))
        return made[-1]

    yield make
    for network in made:
        network.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a directory whose name leaves room for a socket's name (107 bytes in all)."""
    with TemporaryDirectory(prefix="raft-", dir="/tmp") as directory:
        yield Path(directory)
