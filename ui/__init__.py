"""Views of any Kafka-compatible cluster: a page, a terminal view and metrics.

`observer.py` asks the cluster, `facts.py` has its answers, `documents.py` makes JSON of that,
`pages/` HTML, `web/` serves both. Cores are facts, documents, changes and pages.
"""
