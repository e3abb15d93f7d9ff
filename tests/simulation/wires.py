"""The network between simulated processes, with delays, and cuts in one direction.

Processes have numbers. A node has its id, and clients have 101 and above. Node i listens on
PORT_BASE + i.
"""

from collections.abc import Callable, Iterable

from .virtual_loop import Timeline

PORT_BASE = 20_000
CLIENT_NUMBERS = 101
DELAY_S = (0.00008, 0.0009)


class Wires:
    """The delays and cuts of all links between processes."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._cuts: dict[tuple[int, int], int] = {}  # number of faults that cut each link
        self._slow: dict[tuple[int, int], float] = {}
        self.loss = 0.0
        self.repetition = 0.0
        self.disorder = 0.0
        self.silent: set[int] = set()  # machines without power
        self._kept: dict[int, tuple[int, int, float, Callable[[int], None]]] = {}  # see `keep`
        self.on_heal: list[Callable[[], None]] = []

    @staticmethod
    def number_of(port: int) -> int:
        """Return the node that listens on a port."""
        return port - PORT_BASE

    def delay(self, source: int, target: int) -> float:
        """Return the delay of the next message in seconds."""
        rng = self._timeline.random
        base = rng.uniform(*DELAY_S)
        if rng.random() < 0.004:
            base += rng.uniform(0.0, 0.05)
        return base + self._slow.get((source, target), 0.0)

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether the link from `source` to `target` is cut."""
        return bool(self._cuts) and (source, target) in self._cuts

    @property
    def has_cuts(self) -> bool:
        """Return whether any link is cut."""
        return bool(self._cuts)

    def is_prompt(self, source: int, target: int) -> bool:
        """Return whether the link from `source` to `target` is neither cut nor slow."""
        return (source, target) not in self._cuts and (source, target) not in self._slow

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        for link in links:
            self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, links: Iterable[tuple[int, int]]) -> None:
        """End one cut of each of these links, which another fault may still cut."""
        for link in links:
            left = self._cuts.get(link, 0) - 1
            if left > 0:
                self._cuts[link] = left
            else:
                self._cuts.pop(link, None)
        for call in self.on_heal:
            call()

    def slow(self, links: Iterable[tuple[int, int]], seconds: float) -> None:
        """Delay messages on these links by `seconds`. 0 ends the delay."""
        for link in links:
            if seconds:
                self._slow[link] = seconds
            else:
                self._slow.pop(link, None)

    def keep(
        self, source: int, kind: int, count: int, until: float, on_kept: Callable[[int], None]
    ) -> None:
        """Delay the next `count` requests of a node until a random time before `until`.

        `kind` is the kind of request, or 0 for any. `on_kept` is called with the target of each
        delayed request.
        """
        self._kept[source] = kind, count, until, on_kept

    def kept_until(self, source: int, target: int, kind: int) -> float | None:
        """Return the time until which a request is delayed, or None if it is not delayed."""
        if source not in self._kept or self._kept[source][0] not in (0, kind):
            return None
        kind, count, until, on_kept = self._kept.pop(source)
        now = self._timeline.now
        if until <= now:
            return None
        if count > 1:
            self._kept[source] = kind, count - 1, until, on_kept
        on_kept(target)
        return self._timeline.random.uniform(now, until)

    def heal(self) -> None:
        self._cuts.clear()
        self._slow.clear()
        self._kept.clear()
        self.loss = self.repetition = self.disorder = 0.0
        for call in self.on_heal:
            call()
