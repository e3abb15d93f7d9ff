"""Views of any Kafka-compatible cluster, as a web page, a terminal view and metrics.

`observer.py` sends requests to the cluster, and `facts.py` holds the answers. `documents.py`
creates JSON from the facts, and `pages/` creates HTML. `web/` serves both. Facts, documents,
changes and pages are cores.
"""
