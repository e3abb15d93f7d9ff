"""certify: what systems on Kafka promise, held against `prove`; begin with certifying.py."""
