"""transfers: `oncelog demo --job transfers`, one transaction over Kafka and a database.

run.py runs it. service.py is the application, broken.py its variants without a part.
"""
