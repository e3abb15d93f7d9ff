"""What Kafka has and kio's schemas lack, in their form; `tests/wire/added_schemas.py` makes it."""
