"""`oncelog demo --job transfers`, with transactions over Kafka and a database.

run.py runs the job. service.py is the application, and broken.py has the variants of its writer for
`--break`.
"""
