"""Who looks at partitions over many requests: they are told what moved, and ask nothing.

A fetch that names all it wants is linked to each of its partitions while it waits, and to none
afterwards. A fetch session (KIP-227) names only what has changed, so it must not cost what it does
not name: its places stay linked from request to request, and an event notes the place among
`changed`. Nobody asks an idle partition, neither when a fetch begins nor when it is answered.

An event costs the watchers of its partition. One whose session has no fetch waiting is noted once
and unlinked until it is read again: sessions that nobody uses any more cost nothing.
"""

from collections.abc import Callable, Hashable

from .delayed_operations import DelayedFetch


class StandingPlace:
    """One partition of a standing fetch, as it was read last.

    `upper_offset` is where its next records begin; `hidden_bytes`: how much is committed already
    that an open transaction hides from a reader of committed data (see `DelayedFetch`).
    """

    __slots__ = ("hidden_bytes", "standing", "upper_offset", "watched")

    def __init__(self, standing: "StandingFetch") -> None:
        self.standing = standing
        self.watched: Hashable | None = None  # the partition that it is linked to
        self.upper_offset = -1
        self.hidden_bytes = 0

    def was_read(self, upper_offset: int, hidden_bytes: int) -> None:
        """Up to where, and how much an open transaction hides."""
        self.upper_offset, self.hidden_bytes = upper_offset, hidden_bytes


class StandingFetch:
    """The places of one reader: those that something has happened to, in that order, and the fetch
    that waits for them now, if one does."""

    __slots__ = ("changed", "read_committed", "waiting")

    def __init__(self) -> None:
        self.changed: dict[StandingPlace, None] = {}
        self.read_committed = False
        self.waiting: DelayedFetch | None = None


class StandingFetches:
    """All links of one broker, from partitions to places."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Hashable, dict[StandingPlace, None]] = {}

    def __len__(self) -> int:
        """How many partitions anybody looks at."""
        return len(self.places)

    def watch(self, place: StandingPlace, key: Hashable) -> None:
        """Note events of this partition for the place, and of no other."""
        if place.watched is not key:
            self.unwatch(place)
            place.watched = key
            self.places.setdefault(key, {})[place] = None

    def unwatch(self, place: StandingPlace) -> None:
        key, place.watched = place.watched, None
        if key is not None:
            places = self.places[key]
            del places[place]
            if not places:
                del self.places[key]

    def made_visible(
        self,
        key: Hashable,
        upper_offset: int,
        added_bytes: int,
        stable_offset: Callable[[], int] | None = None,
    ) -> list[DelayedFetch]:
        """The fetches that have enough now; see `Purgatory.made_visible`."""
        places = self.places.get(key)
        if not places:
            return []
        enough: list[DelayedFetch] = []
        stable = -1
        for place in list(places):
            standing = place.standing
            standing.changed[place] = None
            operation = standing.waiting
            if operation is None or operation.is_done:
                self.unwatch(place)
                continue
            end, readable = upper_offset, added_bytes
            if standing.read_committed and stable_offset is not None:
                if stable < 0:
                    stable = stable_offset()
                if place.upper_offset >= stable:
                    place.hidden_bytes += added_bytes
                    continue
                readable += place.hidden_bytes
                end, place.hidden_bytes = stable, 0
            if place.upper_offset < end:
                operation.missing_bytes -= readable
                if operation.missing_bytes <= 0:
                    enough.append(operation)
        return enough

    def look_at(self, key: Hashable) -> list[DelayedFetch]:
        """The fetches that wait, where leadership or epoch changed, or the log failed or went."""
        waiting: list[DelayedFetch] = []
        for place in list(self.places.get(key, ())):
            operation = place.standing.waiting
            self.note(place)
            if operation is not None and not operation.is_done:
                waiting.append(operation)
        return waiting

    def note_all(self, key: Hashable) -> None:
        """What rides with the next answer has moved: a log start offset."""
        for place in list(self.places.get(key, ())):
            place.standing.changed[place] = None

    def note(self, place: StandingPlace) -> None:
        """Read it anew, whatever partition it is by then."""
        place.standing.changed[place] = None
        self.unwatch(place)
