"""Three nodes of ours and of Apache Kafka, with equal defaults."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "min.insync.replicas": "2",
}
