"""The messages that kio's schemas lack; `tests/wire/added_schemas.py` makes them."""
