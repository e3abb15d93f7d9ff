"""A topic with short retention, and the check that it has all records from the log start on."""

import random
from collections.abc import Mapping, Sequence

from oncelog.client.consumer import ConsumerRecord

from .own_topic import PARTITIONS, Drawn, OwnTopic, number_of

TOPIC = "passing"


class PassingValues(OwnTopic):
    """A topic with short retention. `places` has the acknowledged number at (partition, offset)."""

    name = TOPIC

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.places: dict[tuple[int, int], int] = {}
        self._configs = {
            "cleanup.policy": "delete",
            "internal.segment.bytes": "400",
            "retention.bytes": self.rng.choice(["0", "900", "3000"]),
            "file.delete.delay.ms": self.rng.choice(["0", "1000"]),
            "index.interval.bytes": "100",
        }

    @property
    def configs(self) -> Mapping[str, str]:
        return self._configs

    def draw(self, rng: random.Random, number: int) -> Drawn:
        return Drawn(rng.randrange(PARTITIONS), None, b"%d" % number)

    def acknowledged(self, number: int, record: Drawn, offset: int) -> None:
        self.places[record.partition, offset] = number

    def forget(self) -> None:
        self.places.clear()

    def missing(self, found: Sequence[ConsumerRecord], starts: Mapping[int, int]) -> list[str]:
        there = {(record.partition, record.offset): number_of(record) for record in found}
        return [
            f"partition {place[0]}, offset {place[1]}: {number} was acknowledged, and "
            f"{there.get(place)} is there"
            for place, number in sorted(self.places.items())
            if place[1] >= starts.get(place[0], place[1] + 1) and there.get(place) != number
        ]
