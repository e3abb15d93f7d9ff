"""Tests of the promises of systems on Kafka, by runs of `prove`. Begin with certifying.py."""
