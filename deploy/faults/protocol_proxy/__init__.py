"""A proxy that knows Kafka's protocol: what clients ask is seen, and faults are put between.

Begin with `proxy.py`; `events.py` is what listeners get, `rules.py` what may be done to requests.
"""
