"""A cluster of three oncelog nodes and one of three Apache Kafka 4.4 nodes, with equal settings."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "min.insync.replicas": "2",
}
# A key that is set only by one of both would be described with another source.
ALL_SETTINGS = SETTINGS | {
    "default.replication.factor": "3",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.two.phase.commit.enable": "true",  # `oncelog up` sets it, too
}
