"""Requests that wait until this broker leads a partition, as the metadata requires.

The metadata names a leader immediately after the decision. The broker must first open the log (of a
new topic, a new partition, or a moved partition), and applies many elections one after the other. A
request that arrives in between waits here, and is then answered from the new state. A log that
cannot be opened, a deleted topic, or another leader ends the wait immediately.
"""

import asyncio
from collections.abc import Callable, Iterable

from ...wire.identifiers import TopicPartition

# A log is opened within milliseconds, and clients wait longer than a second for any answer. If the
# disk takes longer, clients get a retriable error.
WAIT_MS_MAX = 1_000


def _nothing_is(topic: str, index: int) -> bool:
    return False


class AwaitedLeaders:
    """The requests of one broker that wait until it leads a partition.

    is_awaited: a method of `PartitionRoles`.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.is_awaited: Callable[[str, int], bool] = _nothing_is
        self._now_ms = now_ms
        self._waits: dict[str, dict[int, asyncio.Future[None]]] = {}

    def deadline_ms(self, timeout_ms: int = WAIT_MS_MAX) -> int:
        """Return the deadline of a wait that begins now, after `timeout_ms` or WAIT_MS_MAX."""
        return self._now_ms() + max(0, min(timeout_ms, WAIT_MS_MAX))

    async def wait(self, partitions: Iterable[TopicPartition], deadline_ms: int) -> None:
        """Wait until none of these partitions is awaited, or until the deadline.

        The caller must then repeat its lookups, since the leader, its epoch and the topic may have
        changed.
        """
        for topic, index in partitions:
            while self.is_awaited(topic, index):
                left_ms = deadline_ms - self._now_ms()
                if left_ms <= 0:
                    return
                of_topic = self._waits.setdefault(topic, {})
                if index not in of_topic:
                    of_topic[index] = asyncio.get_running_loop().create_future()
                done, _ = await asyncio.wait((of_topic[index],), timeout=left_ms / 1000)
                if not done:
                    return

    def settled(self, topic: str, index: int) -> None:
        """Wake the requests that wait for a partition, unless the partition is still awaited."""
        of_topic = self._waits.get(topic)
        if of_topic and index in of_topic and not self.is_awaited(topic, index):
            of_topic.pop(index).set_result(None)
            if not of_topic:
                del self._waits[topic]

    def topic_deleted(self, topic: str) -> None:
        """Wake the requests that wait for any partition of a topic."""
        for wait in self._waits.pop(topic, {}).values():
            wait.set_result(None)

    def close(self) -> None:
        """Wake all requests, and accept no further waits."""
        self.is_awaited = _nothing_is
        for topic in list(self._waits):
            self.topic_deleted(topic)
