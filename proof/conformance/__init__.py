"""The comparison of the features of two Kafka-compatible clusters; begin with survey.py."""
