"""Tools for columns: places of (group, number) pairs, stable orders, and grouping.

Histories are large and nearly dense, because values count up within a recorder, and offsets within
a partition. Therefore the *place* of a pair is found by addition in a table as long as the numbers
are dense. Only a history with very sparse numbers (an offset of 10^15 in a log of a thousand) needs
sorting.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..history.recorder import NUMBER_BITS

Array = npt.NDArray[Any]
HOLES_MAX = 8  # places a number may cost in a dense table
SLACK = 1 << 16
NUMBER_MASK = (1 << NUMBER_BITS) - 1


class Places:
    """A numbering of (group, number) pairs, ascending by group, then number.

    Each given pair has a place. While the numbers are dense, each number between a group's smallest
    and largest one has a place too. Every other pair has the place -1.
    """

    def __init__(self, pairs: list[tuple[Array, Array]]) -> None:
        self.group_low = min((int(g.min()) for g, _ in pairs if len(g)), default=0)
        groups = max((int(g.max()) for g, _ in pairs if len(g)), default=-1) - self.group_low + 1
        low = np.full(groups, np.iinfo(np.int64).max)
        high = np.full(groups, np.iinfo(np.int64).min)
        total = 0
        for group, number in pairs:
            shifted = group - self.group_low
            np.minimum.at(low, shifted, number)
            np.maximum.at(high, shifted, number)
            total += len(group)
        self._low, self._high = low, high
        span = np.where(high >= low, high.astype(np.float64) - low + 1, 0.0)
        self._numbers: Array | None = None
        if span.sum() <= HOLES_MAX * total + SLACK:
            self.starts = np.concatenate([[0], np.cumsum(span.astype(np.int64))])
        else:
            self._make_sparse(pairs, groups)
        self.size = int(self.starts[-1])

    def _make_sparse(self, pairs: list[tuple[Array, Array]], groups: int) -> None:
        # numbers by rank, then (group, rank) as one key
        self._numbers = np.unique(np.concatenate([number for _, number in pairs]))
        width = len(self._numbers)
        keys = [
            (g - self.group_low).astype(np.int64) * width + np.searchsorted(self._numbers, n)
            for g, n in pairs
        ]
        self._keys = np.unique(np.concatenate(keys))
        self.starts = np.searchsorted(self._keys, np.arange(groups + 1) * width)

    def of(self, group: Array, number: Array) -> Array:
        shifted = group - self.group_low
        is_known = (shifted >= 0) & (shifted < len(self._low))
        safe = np.where(is_known, shifted, 0)
        if not len(self._low):
            return np.full(len(number), -1, np.int32)
        is_known &= (number >= self._low[safe]) & (number <= self._high[safe])
        if self._numbers is None:
            place = self.starts[safe] + (number - self._low[safe])
        else:
            rank = np.minimum(np.searchsorted(self._numbers, number), len(self._numbers) - 1)
            is_known &= self._numbers[rank] == number
            key = safe.astype(np.int64) * len(self._numbers) + rank
            place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            is_known &= self._keys[place] == key
        place[~is_known] = -1
        return place.astype(np.int32) if self.size < 2**31 else place

    def group_of(self, places: Array) -> Array:
        return np.searchsorted(self.starts, places, "right") - 1 + self.group_low

    def number_of(self, places: Array) -> Array:
        group = self.group_of(places) - self.group_low
        if self._numbers is None:
            return self._low[group] + places - self.starts[group]
        return self._numbers[self._keys[places] % len(self._numbers)]

    def each_group(self) -> list[tuple[int, slice]]:
        bounds = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [(self.group_low + i, slice(int(a), int(b))) for i, (a, b) in enumerate(bounds)]


class RowsByNumber:
    """A mapping from the numbers in a column to their rows.

    The numbers count up within their recorder.
    """

    def __init__(self, numbers: Array) -> None:
        pair = numbers >> NUMBER_BITS, numbers & NUMBER_MASK
        self._places = Places([pair])
        self._rows = np.full(self._places.size + 1, -1, np.int32)  # the last one is for "no place"
        self._rows[self._places.of(*pair)] = np.arange(len(numbers), dtype=np.int32)

    def of(self, numbers: Array) -> Array:
        """Return the row of each number, or -1 for an unknown number."""
        return self._rows[self._places.of(numbers >> NUMBER_BITS, numbers & NUMBER_MASK)]


def stable_order(*keys: Array) -> Array:
    """Return the row numbers in the order of these key columns, the most significant key first.

    The sort is stable. Keys are small non-negative numbers, so a pass of 16 bits needs no
    comparison.
    """
    order: Array | None = None
    for key in reversed(keys):
        low = int(key.min()) if len(key) else 0
        rest = int(key.max()) - low if len(key) else 0
        shift = 0
        while rest >> shift:
            digit = key if order is None else key[order]
            digit = ((digit - low) >> shift).astype(np.uint16)
            step = np.argsort(digit, kind="stable")
            order = step if order is None else order[step]
            shift += 16
    return np.arange(len(keys[0])) if order is None else order


def begins(*keys: Array) -> Array:
    """Return, for each row of sorted key columns, whether its keys differ from the row before."""
    found = np.ones(len(keys[0]), bool)
    if len(found) > 1:
        found[1:] = False
        for key in keys:
            found[1:] |= key[1:] != key[:-1]
    return found


def grouped(rows: Array, *keys: Array) -> list[Array]:
    """Return the rows of each group of equal keys, as one array for each group in key order."""
    rows = rows[stable_order(*(key[rows] for key in keys))]
    starts = np.flatnonzero(begins(*(key[rows] for key in keys)))
    return np.split(rows, starts[1:]) if len(rows) else []


def distinct_pairs(first: Array, second: Array) -> tuple[Array, Array]:
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    is_new = begins(first, second)
    return first[is_new], second[is_new]
