"""A proxy that understands Kafka's protocol, observes requests and injects faults.

Begin with `proxy.py`. `events.py` has the events for listeners, `rules.py` the faults of requests.
"""
