"""Finds the topics of a producer's records in one snapshot of the view, and waits for missing ones.

A record waits for a missing topic for max.block.ms, since the topic may have just been created, and
then the record is refused. For metadata.max.age.ms after that, a further record to the topic is
refused without this wait, after at most one request of metadata. Otherwise a mistyped name would
block a producer for hours.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any

from ...wire.errors import KafkaError, UnknownTopicOrPartition
from ..cluster_view import ClusterSnapshot, ClusterView, topic_error
from ..retries import now_ms
from ..settings import LONG_MAX, Settings
from .partitioner import KeyPartitions, StickyPartitioner

LOOK_AGAIN_MS = 1_000
LONG_AGO_MS = -LONG_MAX
UNKNOWN = int(UnknownTopicOrPartition.code)


def require_text(topic: Any) -> None:
    """Raise TypeError for a topic that is no text."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic is text, not {type(topic).__name__}")


class KnownTopic:
    """A topic in one snapshot of the view, with the data that the choice of a partition needs."""

    __slots__ = ("by_key", "count", "led", "snapshot", "sticky")

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        topic: str,
        sticky: StickyPartitioner,
        before: "KnownTopic | None",
    ) -> None:
        found = snapshot.partitions_of(topic)
        self.snapshot, self.sticky, self.count = snapshot, sticky, len(found)
        self.led = [p.partition for p in found if p.leader >= 0]
        if before is not None and before.count == self.count:
            self.by_key = before.by_key
        else:
            self.by_key = KeyPartitions(self.count)

    def stick(self, sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Choose partitions for records without keys.

        Yield (record count, partition) for each run of consecutive records with one partition.
        """
        return self.sticky.choose_many(sizes, self.count, self.led)


class TopicLookup:
    def __init__(self, view: ClusterView, settings: Settings) -> None:
        self._view, self._settings = view, settings
        self.topics: dict[str, KnownTopic] = {}
        self._missing: dict[str, tuple[int, int]] = {}  # missing since, last refreshed
        self.obstacle: KafkaError | None = None  # the reason why a record waits now

    def known(self, topic: str) -> KnownTopic | None:
        """Return the topic from the view's current snapshot, or None if it is unknown."""
        known = self.topics.get(topic)
        if known is None or known.snapshot is not self._view.snapshot:
            return self.look_up(topic)
        return known

    def look_up(self, topic: str) -> KnownTopic | None:
        snapshot, before = self._view.snapshot, self.topics.get(topic)
        if before is not None:
            sticky = before.sticky
        else:
            start = random.randrange(1 << 16)
            sticky = StickyPartitioner(start, bytes_max=self._settings.batch_size)
        found = KnownTopic(snapshot, topic, sticky, before)
        if not found.count:
            return None
        self.topics[topic] = found
        return found

    async def until_known(self, topic: str) -> None:
        """Return when the topic is in the view, or raise the topic's error after max.block.ms.

        Raises TypeError for a topic that is no text, which no metadata would ever contain.
        """
        require_text(topic)
        since_ms, looked_ms = self._missing.get(topic, (LONG_AGO_MS, LONG_AGO_MS))
        is_missing = now_ms() - since_ms < self._settings.metadata_max_age_ms
        if is_missing and now_ms() - looked_ms < LOOK_AGAIN_MS:
            raise topic_error(topic, UNKNOWN)

        async def attempt() -> bool:
            try:
                code = (await self._view.refresh([topic])).topic_errors.get(topic, 0)
            except KafkaError as problem:
                self.obstacle = problem
                raise
            self.obstacle = topic_error(topic, code) if code else None
            if code and not (code == UNKNOWN and is_missing):
                raise topic_error(topic, code)
            return not code

        limit_ms = self._settings.max_block_ms
        try:
            if await self._view.retrying(attempt, timeout_ms=limit_ms, topics=[topic]):
                self._missing.pop(topic, None)
                return
        except UnknownTopicOrPartition:
            pass
        finally:
            self.obstacle = None
        self._missing[topic] = since_ms if is_missing else now_ms(), now_ms()
        raise topic_error(topic, UNKNOWN)
