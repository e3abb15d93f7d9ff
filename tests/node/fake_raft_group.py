"""What the shells ask of a Raft group, in the hands of a test."""

from collections.abc import Callable


class FakeRaftGroup:
    """Keeps who wants to hear; what happens to the group is its subclass's."""

    def __init__(self) -> None:
        self.elected: list[Callable[[int], None]] = []
        self.resigned: list[Callable[[], None]] = []
        self.applied: list[Callable[[int], None]] = []
        self.on_elected = self.elected.append
        self.on_resigned = self.resigned.append
        self.on_applied = self.applied.append
