"""Counts of the lines of Python in a turn of the event loop, which are equal on any machine."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from oncelog.runtime.sliced_work import SLICE_S

LINES_A_SLICE = 2_000
PACKAGE = str(Path(sys.modules["oncelog"].__file__ or "").parent)
COUNTED = (PACKAGE, "<string>")  # also the code of @dataclass: a line for each field


class Lines:
    """The number of product lines in the longest turn of the loop, also by function."""

    def __init__(self, a_slice: int = LINES_A_SLICE) -> None:
        self.a_slice = a_slice
        self.count = self.longest = 0
        self.busiest: list[tuple[str, int]] = []
        self._began = 0
        self._of_turn: Counter[int] = Counter()  # by id: the hash of code is that of its constants
        self._codes: dict[int, CodeType] = {}

    def clock(self) -> float:
        return self.count * SLICE_S / self.a_slice

    def begin_turn(self) -> None:
        self._began = self.count
        self._of_turn.clear()

    def end_turn(self) -> None:
        lines = self.count - self._began
        if lines > self.longest:
            self.longest = lines
            busiest = self._of_turn.most_common(3)
            self.busiest = [(self._codes[code].co_qualname, n) for code, n in busiest]

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(COUNTED):
            return None
        self._codes[id(code)] = code
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        self.count += 1
        self._of_turn[id(frame.f_code)] += 1
        return self._line

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.longest, self.busiest = 0, []
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(before)


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that reports the begin and end of each turn to `Lines`."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        super().__init__()

    def _run_once(self) -> None:
        self._lines.begin_turn()
        super()._run_once()  # type: ignore[misc]
        self._lines.end_turn()
