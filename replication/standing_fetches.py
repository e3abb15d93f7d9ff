"""Links from partitions to the fetch sessions that read them, kept from request to request.

A fetch that names all its partitions is linked to each of them while it waits, and to none
afterwards. A fetch session (KIP-227) names only what has changed, so partitions that it does not
name must cost nothing: its places stay linked from request to request, and an event puts the place
into `changed`. An idle partition is not visited, neither when a fetch begins nor when it is
answered.

An event costs the watchers of its partition. A place is noted once, and unlinked until it is read
again, while its session has no waiting fetch: unused sessions cost nothing.
"""

from collections.abc import Callable, Hashable

from .delayed_operations import DelayedFetch


class StandingPlace:
    """One partition of a standing fetch, as it was read last.

    `upper_offset` is where its next records begin; `hidden_bytes`: how much is committed already
    but hidden from a reader of committed data by an open transaction (see `DelayedFetch`).
    """

    __slots__ = ("hidden_bytes", "standing", "upper_offset", "watched")

    def __init__(self, standing: "StandingFetch") -> None:
        self.standing = standing
        self.watched: Hashable | None = None  # the partition that it is linked to
        self.upper_offset = -1
        self.hidden_bytes = 0

    def was_read(self, upper_offset: int, hidden_bytes: int) -> None:
        """Note the end of a read and how much an open transaction hides."""
        self.upper_offset, self.hidden_bytes = upper_offset, hidden_bytes


class StandingFetch:
    """The places of one reader: its changed ones, in order, and the fetch that waits for them."""

    __slots__ = ("changed", "read_committed", "waiting")

    def __init__(self) -> None:
        self.changed: dict[StandingPlace, None] = {}
        self.read_committed = False
        self.waiting: DelayedFetch | None = None


class StandingFetches:
    """An index of the fetch sessions of one broker that read each partition."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Hashable, dict[StandingPlace, None]] = {}

    def __len__(self) -> int:
        """Return how many partitions are watched."""
        return len(self.places)

    def watch(self, place: StandingPlace, key: Hashable) -> None:
        """Note events of this partition, and of no other, for the place."""
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
        """Return the fetches that have enough now; see `Purgatory.made_visible`."""
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
        """Note a change of leader or epoch, or a lost log; return the waiting fetches."""
        waiting: list[DelayedFetch] = []
        for place in list(self.places.get(key, ())):
            operation = place.standing.waiting
            self.note(place)
            if operation is not None and not operation.is_done:
                waiting.append(operation)
        return waiting

    def note_all(self, key: Hashable) -> None:
        """Note a change that the next answer reports: a log start offset."""
        for place in list(self.places.get(key, ())):
            place.standing.changed[place] = None

    def note(self, place: StandingPlace) -> None:
        """Have the place read again, whatever partition its key means by then."""
        place.standing.changed[place] = None
        self.unwatch(place)
