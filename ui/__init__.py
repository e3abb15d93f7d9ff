"""Views of any Kafka-compatible cluster: a web page, a terminal view and metrics.

`observer.py` sends requests to the cluster, and `facts.py` holds the answers. `documents.py` makes
JSON from them, and `pages/` makes HTML; `web/` serves both. Facts, documents, changes and pages are
cores.
"""
