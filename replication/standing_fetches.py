"""Permanent links from partitions to the fetch sessions that read them.

A fetch that names all its partitions is linked to each partition while the fetch waits, and to none
afterwards. A fetch session (KIP-227) names only changed partitions, so the other partitions must
cost nothing. The partitions of a session (places) stay linked between requests, and an event adds
the place to `changed`. An idle partition is not visited, neither when a fetch begins nor when it is
answered.

The cost of an event is the number of watchers of its partition. While a session has no waiting
fetch, a place is marked once and unlinked until it is read again, so unused sessions cost nothing.
"""

from collections.abc import Callable, Hashable

from .delayed_operations import DelayedFetch


class StandingPlace:
    """A place, which is one partition of a fetch session, with the results of its last read.

    `upper_offset` is the offset of its next records. `hidden_bytes` are committed bytes that an
    open transaction hides from a read_committed consumer (see `DelayedFetch`).
    """

    __slots__ = ("hidden_bytes", "standing", "upper_offset", "watched")

    def __init__(self, standing: "StandingFetch") -> None:
        self.standing = standing
        self.watched: Hashable | None = None  # the linked partition
        self.upper_offset = -1
        self.hidden_bytes = 0

    def was_read(self, upper_offset: int, hidden_bytes: int) -> None:
        """Record the end offset of a read, and the bytes that an open transaction hides there."""
        self.upper_offset, self.hidden_bytes = upper_offset, hidden_bytes


class StandingFetch:
    """The places (partitions) of one fetch session that have changed, and its waiting fetch."""

    __slots__ = ("changed", "read_committed", "waiting")

    def __init__(self) -> None:
        self.changed: dict[StandingPlace, None] = {}
        self.read_committed = False
        self.waiting: DelayedFetch | None = None


class StandingFetches:
    """An index of the fetch sessions of one broker by partition."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Hashable, dict[StandingPlace, None]] = {}

    def __len__(self) -> int:
        """Return the number of watched partitions."""
        return len(self.places)

    def watch(self, place: StandingPlace, key: Hashable) -> None:
        """Link a session's place to the partition `key`, and remove its former link."""
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
        """Return the fetches that now have enough bytes (see `Purgatory.made_visible`)."""
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
        """Mark a partition as changed in all sessions, after a change of its leader or its log.

        Returns the waiting fetches of these sessions.
        """
        waiting: list[DelayedFetch] = []
        for place in list(self.places.get(key, ())):
            operation = place.standing.waiting
            self.note(place)
            if operation is not None and not operation.is_done:
                waiting.append(operation)
        return waiting

    def note_all(self, key: Hashable) -> None:
        """Let the next fetch of each session read this partition to report its new log start."""
        for place in list(self.places.get(key, ())):
            place.standing.changed[place] = None

    def note(self, place: StandingPlace) -> None:
        """Mark a partition of a session to be read by the next fetch, and unlink it until then."""
        place.standing.changed[place] = None
        self.unwatch(place)
