"""conformance: a Kafka-compatible cluster's features beside another's; begin with survey.py."""
