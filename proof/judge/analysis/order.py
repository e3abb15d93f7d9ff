"""The value at each offset of each partition, as far as acknowledgements and readers show it.

A *place* is a (partition, offset) pair. Every place has at most one *holder*, the send that is
assumed to be there. Another send that claims the place is among the *rivals*. A correct history has
no rivals. An *index* is the number of a place among the places with a holder in its partition.
"""

from functools import cached_property

import numpy as np

from .arrays import Array, Places, distinct_pairs


class Order:
    """The value at each place (a partition and offset), and the places of each value.

    send_place: the acknowledged place of each sent record, -1 if none. claims: (places, sent
    records) that readers saw.
    """

    def __init__(
        self,
        places: Places,
        send_partition: Array,
        send_place: Array,
        claims: list[tuple[Array, Array]],
    ) -> None:
        self.places, self._send_partition = places, send_partition
        holder = np.full(places.size + 1, -1, np.int32)  # the last one is for "no place"
        sent = np.flatnonzero(send_place >= 0).astype(np.int32)
        at = send_place[sent]
        holder[at] = sent
        rivals = [(at[holder[at] != sent], sent[holder[at] != sent])]
        for place, writer in claims:
            is_free = holder[place] < 0
            holder[place[is_free]] = writer[is_free]
            is_rival = holder[place] != writer
            rivals.append((place[is_rival], writer[is_rival]))
        self.holder = holder[:-1]
        self.rival_places, self.rival_sends = distinct_pairs(
            np.concatenate([p for p, _ in rivals]), np.concatenate([w for _, w in rivals])
        )

    @cached_property
    def index(self) -> Array:
        """Return the number of each place among the held places of its partition, else -1."""
        is_held = self.holder >= 0
        counted = np.cumsum(is_held, dtype=np.int32)
        found = np.full(self.places.size, -1, np.int32)
        for _, span in self.places.each_group():
            if span.start < span.stop:
                before = counted[span.start - 1] if span.start else 0
                found[span] = counted[span] - 1 - before
        found[~is_held] = -1
        return found

    @cached_property
    def _extremes(self) -> tuple[Array, Array, Array]:
        sends = len(self._send_partition)
        held = np.flatnonzero(self.holder >= 0)
        if len(self.holder) < 2**31:
            held = held.astype(np.int32)
        first = np.full(sends, -1, held.dtype)
        last = np.full(sends, -1, held.dtype)
        holder = self.holder[held]
        count = np.bincount(holder, minlength=sends).astype(np.int32)
        first[holder[::-1]] = held[::-1]
        last[holder] = held
        if len(self.rival_sends):
            count += np.bincount(self.rival_sends, minlength=sends).astype(np.int32)
            for place, send in zip(self.rival_places, self.rival_sends, strict=True):
                first[send] = place if first[send] < 0 else min(first[send], place)
                last[send] = max(last[send], place)
        return first, last, count

    @property
    def first_place(self) -> Array:
        """Return the lowest place at which each sent value was read or acknowledged, or -1."""
        return self._extremes[0]

    @property
    def last_place(self) -> Array:
        """Return the highest place at which each sent value was read or acknowledged."""
        return self._extremes[1]

    @property
    def copies(self) -> Array:
        """Return the number of places at which each sent value was read or acknowledged."""
        return self._extremes[2]

    def places_of(self, send: int) -> list[int]:
        held = np.flatnonzero(self.holder == send).tolist()
        return sorted({*held, *self.rival_places[self.rival_sends == send].tolist()})

    def sends_at(self, place: int) -> list[int]:
        """Return all sent records that were acknowledged or read at a place."""
        rivals = self.rival_sends[self.rival_places == place].tolist()
        holder = int(self.holder[place])
        return sorted({*([holder] if holder >= 0 else []), *rivals})

    def between(self, low: int, high: int, most: int) -> list[int]:
        """Return the sent records at the places strictly between two places, at most `most`."""
        span = self.holder[low + 1 : high]
        return span[span >= 0][:most].tolist()
