"""What people look at: a page, a terminal view and metrics of any Kafka-compatible cluster.

`observer.py` asks the cluster, `facts.py` is what it was told, `documents.py` makes JSON of that,
`pages/` HTML, `web/` serves both. Cores are facts, documents, changes and pages.
"""
