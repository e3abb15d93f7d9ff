"""The base class of the rules of the diagnosis, and dictionaries of limited size."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from .seen import Sighting

K = TypeVar("K")
V = TypeVar("V")
Tell = Callable[[str, Sighting, str, str], None]  # kind, what was seen last, subject, evidence
REMEMBERED_MAX = 20_000
OPEN_MAX = 1_000  # transactions; those of random ids whose instance was killed never end


class FindingRule(Protocol):
    """A rule of the diagnosis. It gets every sighting (a fact about a request) in order.

    It reports findings by a call of `tell`.
    """

    def see(self, seen: Sighting, tell: Tell) -> None: ...


class Recent(Generic[K, V]):
    """A dictionary that keeps at most `size_max` entries.

    Beyond that number it drops the entry whose last `put` is the oldest.
    """

    def __init__(self, size_max: int = REMEMBERED_MAX) -> None:
        self._items = OrderedDict[K, V]()
        self._size_max = size_max

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size_max:
            self._items.popitem(last=False)

    def setdefault(self, key: K, value: V) -> V:
        if key not in self._items:
            self.put(key, value)
        return self._items[key]

    def pop(self, key: K) -> V | None:
        return self._items.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        return list(self._items.items())
