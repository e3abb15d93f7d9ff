"""The input of a lesson's reader, which is read while the lesson waits."""

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Literal

Answer = Literal["do", "repeat", "skip", "quit", "other"]
ANSWERS: dict[str, Answer] = {"": "do", "d": "do", "r": "repeat", "s": "skip", "q": "quit"}
KEYS = "Enter: the lesson does it    r: repeat the step    s: skip it    q: quit"
POLL_S = 0.1


class Quit(Exception):
    """The reader asked to quit the lesson, or the input has ended."""


class Repeat(Exception):
    """The reader asked to repeat the current step."""


class Skip(Exception):
    """The reader asked to skip the current step."""


class Dialogue:
    """Reads stdin line by line in a thread, so that the program can wait for other events, too."""

    def __init__(self, lines: Callable[[], str] = sys.stdin.readline) -> None:
        self._read = lines
        self._typed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_over = False  # the reader has quit, or the input has ended
        threading.Thread(target=self._listen, name="lesson-input", daemon=True).start()

    def until(self, has_happened: Callable[[], bool], do: Callable[[], object]) -> None:
        """Wait until `has_happened()`. If the reader presses Enter, call `do` to make it happen.

        Raises Quit, Repeat, Skip.
        """
        while not has_happened():
            if self.look() == "do":
                do()
            else:
                time.sleep(POLL_S)

    @property
    def waiting(self) -> int:
        """Return the number of lines that were typed and not read yet."""
        return self._typed.qsize()

    def forget(self) -> None:
        """Drop all lines typed so far. A `quit` among them still counts."""
        while self._answer() not in (None, "quit"):
            pass

    def look(self) -> Answer | None:
        """Return the answer typed since the last call, or None without a new line.

        Raises Quit, Repeat, Skip.
        """
        answer = "quit" if self._is_over else self._answer()
        if answer == "quit":
            raise Quit
        if answer == "repeat":
            raise Repeat
        if answer == "skip":
            raise Skip
        return answer

    def next(self) -> None:
        """Wait until the reader presses Enter or skips, or raise Quit or Repeat."""
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
        answer = "quit" if not line else ANSWERS.get(line.strip().lower(), "other")
        self._is_over = self._is_over or answer == "quit"
        return answer

    def _listen(self) -> None:
        while True:
            line = self._read()
            self._typed.put(line)
            if not line:
                return
