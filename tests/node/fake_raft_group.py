"""The interface of a Raft group that the shells use, controlled by a test."""

from collections.abc import Callable


class FakeRaftGroup:
    """A Raft group that stores its callbacks, which a subclass calls."""

    def __init__(self) -> None:
        self.elected: list[Callable[[int], None]] = []
        self.resigned: list[Callable[[], None]] = []
        self.applied: list[Callable[[int], None]] = []
        self.on_elected = self.elected.append
        self.on_resigned = self.resigned.append
        self.on_applied = self.applied.append
