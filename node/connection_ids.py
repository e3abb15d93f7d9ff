"""Numbers for a broker's connections, in the order in which they are accepted."""


class ConnectionIds:
    """A counter of connections. newest: the number of the connection accepted last."""

    __slots__ = ("newest",)

    def __init__(self) -> None:
        self.newest = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest
