"""Remembers the Produce requests that have no answer yet, for the rules about answers."""

from dataclasses import replace

from .rule import Recent
from .seen import SeenProduce, SeenProduced

UNANSWERED_MAX = 2_000


class UnansweredProduces:
    """A memory of Produce requests, which holds each batch until its answer.

    Requests with acks=0 have no answer, so they are not remembered.
    """

    def __init__(self) -> None:
        # By connection and number.
        self._sent = Recent[tuple[int, int], SeenProduce](UNANSWERED_MAX)

    def sent(self, seen: SeenProduce) -> None:
        if seen.acks != 0:
            self._sent.put((seen.connection, seen.number), seen)

    def answered(self, seen: SeenProduced) -> SeenProduce | None:
        """Forget the answered batches. Return their request with only these batches."""
        sent = self._sent.pop((seen.connection, seen.number))
        if sent is None or not seen.partitions:
            return sent
        answered = tuple(each for each in sent.batches if each.partition in seen.partitions)
        left = tuple(each for each in sent.batches if each.partition not in seen.partitions)
        self._sent.put((seen.connection, seen.number), replace(sent, batches=left))
        return replace(sent, batches=answered)

    def closed(self, connection: int) -> list[SeenProduce]:
        """Forget the requests of a connection, and return them."""
        found = [(key, sent) for key, sent in self._sent.items() if key[0] == connection]
        for key, _ in found:
            self._sent.pop(key)
        return [sent for _, sent in found]
