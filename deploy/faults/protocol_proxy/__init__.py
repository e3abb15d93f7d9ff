"""A proxy that understands Kafka's protocol. It observes requests and makes faults in them.

Begin with `proxy.py`. `events.py` has the events for listeners, `rules.py` the faults of requests.
"""
