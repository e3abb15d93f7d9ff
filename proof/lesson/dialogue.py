"""What the reader of a lesson types, while something else is watched."""

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

Answer = Literal["do", "repeat", "skip", "quit"]
ANSWERS: dict[str, Answer] = {"": "do", "d": "do", "r": "repeat", "s": "skip", "q": "quit"}
KEYS = "Enter: the lesson does it    r: repeat the step    s: skip it    q: quit"
POLL_S = 0.1


class Quit(Exception):
    """The reader has had enough, or the input has ended."""


class Repeat(Exception):
    """The step is to begin anew."""


class Skip(Exception):
    """The step is to be left."""


class Dialogue:
    """Lines of stdin, read by a thread, since a program cannot wait for them and for others."""

    def __init__(self, lines: Callable[[], str] = sys.stdin.readline) -> None:
        self._read = lines
        self._typed: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="lesson-input", daemon=True).start()

    def until(self, has_happened: Callable[[], bool], do: Callable[[], object]) -> None:
        """Return when it has happened, by the reader's hand or by `do`.

        Raises Quit, Repeat, Skip.
        """
        while not has_happened():
            match self._answer():
                case "do":
                    do()
                case "repeat":
                    raise Repeat
                case "skip":
                    raise Skip
                case "quit":
                    raise Quit
                case None:
                    time.sleep(POLL_S)

    def next(self) -> None:
        """Return when the reader wants to go on. Raises Quit, Repeat."""
        is_over: list[bool] = []
        try:
            self.until(lambda: bool(is_over), lambda: is_over.append(True))
        except Skip:
            return

    def _answer(self) -> Answer | None:
        try:
            line = self._typed.get_nowait()
        except queue.Empty:
            return None
        return "quit" if not line else ANSWERS.get(line.strip().lower())

    def _listen(self) -> None:
        while True:
            line = self._read()
            self._typed.put(line)
            if not line:
                return
