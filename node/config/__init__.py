"""The configuration of one broker, as a table of Kafka's keys and one immutable value."""
