"""Tests of the promises of systems on Kafka, by runs of `prove`; begin with certifying.py."""
