"""node/config: the configuration of one broker: Kafka's keys in a table, one frozen value."""
