"""transfers: `oncelog demo --job transfers`, one transaction over Kafka and a database.

run.py conducts it; service.py is the application, broken.py its variants with a part removed.
"""
