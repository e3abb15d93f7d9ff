"""The known end of each partition, and the partitions that are not polled to their ends.

The file does no I/O. A load that moves to new partitions leaves records that were sent and never
read. Anomalies that only a reading shows would then stay hidden. `UnreadPartitions` lists these
partitions, so that a workload can assign them to a consumer again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class UnreadPartitions:
    """The highest sent offset of each partition that was not yet polled to its end."""

    sent: dict[str, int] = field(default_factory=dict[str, int])
    polled: dict[str, int] = field(default_factory=dict[str, int])

    def saw(self, sent: Mapping[str, int], polled: Mapping[str, int]) -> None:
        """Note each partition's highest offsets that a successful operation sent and polled."""
        for known, new in ((self.sent, sent), (self.polled, polled)):
            for partition, offset in new.items():
                known[partition] = max(known.get(partition, -1), offset)
        for partition in {*self.sent, *self.polled}:
            if self.polled.get(partition, -1) >= self.sent.get(partition, -1):
                self.sent.pop(partition, None)
                self.polled.pop(partition, None)

    def unread(self) -> list[str]:
        """Return the partitions with records that were sent and not polled, in order."""
        return sorted(self.sent)

    def widen(self, partitions: Iterable[str], draw: float) -> list[str]:
        """Return the partitions to assign, and in a third of cases also the unread partitions.

        draw: a random number in [0, 1).
        """
        wanted = list(partitions)
        return list(dict.fromkeys([*self.unread(), *wanted])) if draw < 1 / 3 else wanted


def highest_offsets(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the highest offset of each partition among (partition, offset) pairs."""
    found: dict[str, int] = {}
    for partition, offset in pairs:
        if offset >= 0:
            found[partition] = max(found.get(partition, -1), offset)
    return found
