"""The common identifiers of a partition and of a producer's session."""

TopicPartition = tuple[str, int]  # topic name, partition index
TopicIdPartition = tuple[bytes, int]  # topic id, partition index
Identity = tuple[int, int]  # producer id and producer epoch, both -1 if there is none
