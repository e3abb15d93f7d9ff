"""A proxy that knows Kafka's protocol: it observes requests, and inserts faults.

Begin with `proxy.py`; `events.py` has the events of listeners, `rules.py` the faults of requests.
"""
