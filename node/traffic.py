"""Counts of the records and bytes that clients produce to and fetch from one broker's topics."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class TopicTraffic:
    """The counts of a topic on this broker, equal to Kafka's BrokerTopicMetrics.

    produced        partitions of this broker in Produce requests
    produce_failed  partitions with a batch refused for another reason than a new leader
    fetched         reads of a partition for a consumer, with each read of a waiting fetch
    bytes_out       bytes of answers to consumers
    all             the counts of all topics, to which each count is added, or None
    """

    all: "TopicTraffic | None" = None
    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produced: int = 0
    produce_failed: int = 0
    fetched: int = 0

    def count_batch(self, records: int, size_bytes: int) -> None:
        """Count a batch of a Produce request. `records` is 0 for a duplicate."""
        self.produced += 1
        self.messages_in += records
        self.bytes_in += size_bytes
        if self.all is not None:
            self.all.produced += 1
            self.all.messages_in += records
            self.all.bytes_in += size_bytes

    def count_sent(self, size_bytes: int) -> None:
        """Count bytes that are sent to a consumer."""
        self.bytes_out += size_bytes
        if self.all is not None:
            self.all.bytes_out += size_bytes

    def count_refused(self, *, is_failure: bool) -> None:
        """Count a partition of a Produce request that is answered with an error."""
        self.produced += 1
        self.produce_failed += is_failure
        if self.all is not None:
            self.all.produced += 1
            self.all.produce_failed += is_failure

    def count_fetch(self) -> None:
        """Count a partition that a consumer's fetch reads."""
        self.fetched += 1
        if self.all is not None:
            self.all.fetched += 1


@dataclass(slots=True)
class Traffic:
    """The counts of all topics.

    A topic's counts are dropped when its last replica leaves this broker.
    """

    total: TopicTraffic = field(default_factory=TopicTraffic)
    _by_id: dict[bytes, tuple[str, TopicTraffic]] = field(
        default_factory=dict[bytes, tuple[str, TopicTraffic]]
    )

    def of(self, topic_id: bytes, name: str) -> TopicTraffic:
        """Return the counts of a topic, which begin at 0."""
        return self._by_id.setdefault(topic_id, (name, TopicTraffic(self.total)))[1]

    def drop(self, topic_id: bytes) -> None:
        """Drop the counts of a topic, which remain in the counts of all topics."""
        self._by_id.pop(topic_id, None)

    def topics(self) -> list[tuple[str, TopicTraffic]]:
        """Return the name and the counts of each topic on this broker."""
        return list(self._by_id.values())
