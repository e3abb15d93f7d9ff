"""A compacted topic, and the check that each key has its last acknowledged value or a later one.

A writer counts up the values of each key, and removes some keys, while the topic is compacted. Each
key is used only for a while, so that later writes do not hide a loss.
"""

import random
from collections.abc import Mapping, Sequence

from oncelog.client.consumer import ConsumerRecord

from .own_topic import PARTITIONS, WATCH_S, Drawn, OwnTopic, number_of

TOPIC, KEYS, BLOCK = "latest", 6, 30
REMOVALS = 0.3
REMOVAL = b"removal"


class LatestValues(OwnTopic):
    """A compacted topic with the last acknowledged value of each key.

    `latest` has for each (partition, key) the highest acknowledged number, and whether the record
    was a tombstone.
    """

    name = TOPIC

    def __init__(self, seed: int, removals_kept_s: float = 2.0) -> None:
        super().__init__(seed)
        self._removals_kept_s = removals_kept_s
        self.latest: dict[tuple[int, bytes], tuple[int, bool]] = {}
        self._removals: dict[tuple[int, bytes], int] = {}  # the highest that was sent
        self._configs = {
            "cleanup.policy": "compact",
            "internal.segment.bytes": "400",
            "min.cleanable.dirty.ratio": "0.1",
            "index.interval.bytes": "100",
            "delete.retention.ms": str(int(removals_kept_s * 1_000)),
        }

    @property
    def configs(self) -> Mapping[str, str]:
        return self._configs

    def draw(self, rng: random.Random, number: int) -> Drawn:
        key = b"%d.%d.%d" % (self.life, number // BLOCK, rng.randrange(KEYS))
        value = None if rng.random() < REMOVALS else b"%d" % number
        return Drawn(rng.randrange(PARTITIONS), key, value)

    def sent(self, number: int, record: Drawn) -> None:
        if record.value is None and record.key is not None:
            self._removals[record.partition, record.key] = number

    def acknowledged(self, number: int, record: Drawn, offset: int) -> None:
        assert record.key is not None
        self.latest[record.partition, record.key] = number, record.value is None

    def forget(self) -> None:
        self.latest.clear()
        self._removals.clear()

    def missing(self, found: Sequence[ConsumerRecord], starts: Mapping[int, int]) -> list[str]:
        values: dict[tuple[int, bytes], int] = {}
        removed: dict[tuple[int, bytes], int] = {}
        for record in found:
            place, number = (record.partition, record.key or b""), number_of(record)
            kind = removed if record.value is None else values
            kind[place] = max(kind.get(place, -1), number)
        words: list[str] = []
        for place, (number, is_removal) in sorted(self.latest.items()):
            value, removal = values.get(place, -1), removed.get(place, -1)
            if place[0] not in starts or max(value, removal) >= number:
                continue
            where = f"partition {place[0]}, key {place[1].decode()}"
            # A replica that is away for longer comes back to a log without its values' tombstones.
            is_back = value >= 0 and self.gap_s + WATCH_S < self._removals_kept_s
            if is_removal:
                if is_back:
                    words.append(f"{where}: removed by {number}, and {value} is there again")
            elif self._removals.get(place, -1) < number or is_back:
                words.append(f"{where}: {number} was acknowledged, and {value} is the latest")
        return words
