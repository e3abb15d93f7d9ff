"""An ordered set of partitions, kept by topic: all of a topic come and go in one step each."""

from collections.abc import Iterable, Iterator

from ..wire.identifiers import TopicPartition


class PartitionSet:
    """Nothing may depend on its order, which a snapshot does not keep."""

    __slots__ = ("_indexes",)

    def __init__(self) -> None:
        self._indexes: dict[str, dict[int, None]] = {}  # of topics that have any in it

    def __bool__(self) -> bool:
        return bool(self._indexes)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, indexes in self._indexes.items():
            for index in indexes:
                yield topic, index

    def add(self, key: TopicPartition) -> None:
        """Have it in the set."""
        topic, index = key
        self._indexes.setdefault(topic, {})[index] = None

    def add_all(self, topic: str, indexes: Iterable[int]) -> None:
        """Have these of a topic that has none in it yet."""
        self._indexes[topic] = dict.fromkeys(indexes)

    def discard(self, key: TopicPartition) -> None:
        """Have it in the set no longer."""
        topic, index = key
        indexes = self._indexes.get(topic)
        if indexes is not None:
            indexes.pop(index, None)
            if not indexes:
                del self._indexes[topic]

    def discard_topic(self, topic: str) -> None:
        """Have no partition of the topic any longer."""
        self._indexes.pop(topic, None)
