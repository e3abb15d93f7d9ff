"""Counts of the function calls (Python and C) that each callback of the event loop causes.

Counts do not depend on the machine, only on the version of Python.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = str(Path(sys.modules["oncelog"].__file__ or "").parent)
TESTS = str(Path(__file__).parents[1])


class Calls:
    """Counts of calls in this thread, by the product function that was called first.

    Each value is [calls of Python functions, calls of C functions].
    """

    def __init__(self) -> None:
        self.by_root: dict[str, list[int]] = {}
        self.by_function: Counter[tuple[str, str]] = Counter()  # (root, function or name in C)
        self._depth = 0
        self._root: list[int] | None = None
        self._name = ""

    def counts(self, *roots: str) -> tuple[int, int]:
        """Return the calls of Python and of C functions that these product functions caused."""
        found = [self.by_root.get(root, [0, 0]) for root in roots]
        return sum(each[0] for each in found), sum(each[1] for each in found)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count calls while the context is open, except in functions that are already running."""
        self._depth, self._root = 0, None
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if self._depth == 0:
                self._enter(frame.f_code)
            self._depth += 1
            if self._root is not None:
                self._root[0] += 1
                self.by_function[self._name, frame.f_code.co_qualname] += 1
        elif event == "return":
            # Functions that were entered before the count return, too.
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self._root = None
        elif event == "c_call" and self._root is not None:
            self._root[1] += 1
            self.by_function[self._name, f"C {argument.__qualname__}"] += 1

    def _enter(self, code: CodeType) -> None:
        name = code.co_filename
        self._root = None
        if name.startswith(PACKAGE) and not name.startswith(TESTS):
            self._name = code.co_qualname
            self._root = self.by_root.setdefault(self._name, [0, 0])


def calls_of(function: Callable[[], object]) -> int:
    """Call a function, and return the number of calls of Python and C functions that it makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls
