"""The numbers of a broker's connections, in the order of their acceptance."""


class ConnectionIds:
    """A counter of connections.

    newest: the number of the connection that was accepted last.
    """

    __slots__ = ("newest",)

    def __init__(self) -> None:
        self.newest = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest
