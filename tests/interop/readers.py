"""What readers see of a topic to its end, with confluent-kafka."""

import time

PATIENCE_S = 30.0


def read_to_end(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True
) -> list[tuple[int, bytes]]:
    """(partition, value) of every record; fails when a partition's end cannot be reached.

    committed: read_committed, whose end is where the log ends only if no transaction is open.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "of no group",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    rows: list[tuple[int, bytes]] = []
    try:
        places = [TopicPartition(topic, index, 0) for index in range(partitions)]
        consumer.assign(places)
        unfinished = set(range(partitions))
        deadline = time.monotonic() + PATIENCE_S
        while unfinished:
            assert time.monotonic() < deadline, f"partitions {unfinished} of {topic} do not end"
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                if error is None:
                    assert value is not None
                    rows.append((partition, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
    finally:
        consumer.close()
    return rows
