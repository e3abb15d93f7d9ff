"""The messages that kio's schemas lack; `tests/wire/added_schemas.py` makes them."""


class Flexible:
    """The base of messages with compact types and tags (KIP-482)."""

    __slots__ = ()
    __flexible__ = True
