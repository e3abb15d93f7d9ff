"""A stand-in for a Raft group, controlled by the test."""

from collections.abc import Callable


class FakeRaftGroup:
    """A Raft group that stores its callbacks. The subclass or test calls them."""

    def __init__(self) -> None:
        self.elected: list[Callable[[int], None]] = []
        self.resigned: list[Callable[[], None]] = []
        self.applied: list[Callable[[int], None]] = []
        self.on_elected = self.elected.append
        self.on_resigned = self.resigned.append
        self.on_applied = self.applied.append
