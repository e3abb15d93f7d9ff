"""Tests, by runs of `prove`, whether systems on Kafka keep the guarantees that they promise.

Begin with certifying.py.
"""
