"""The configuration of one broker: the table of Kafka's keys, and an object of the values."""
