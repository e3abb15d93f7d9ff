"""The identifiers used everywhere: of a partition, and of a producer's session."""

TopicPartition = tuple[str, int]  # topic name, partition index
TopicIdPartition = tuple[bytes, int]  # topic id, partition index
Identity = tuple[int, int]  # producer id, producer epoch; both are -1 where there is none
