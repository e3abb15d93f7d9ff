"""conformance: what a Kafka-compatible cluster serves, beside another; begin with survey.py."""
