"""Compares the features of two Kafka-compatible clusters. Begin with survey.py."""
