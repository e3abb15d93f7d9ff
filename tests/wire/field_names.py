"""The check that a message has no unknown field names, which the encoders would ignore."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from oncelog.wire.messages.apis import APIS
from oncelog.wire.messages.control import _schema
from oncelog.wire.messages.schema import kinds_of
from oncelog.wire.messages.schema_encoder import Each


@cache
def _names(api_key: int, direction: str) -> frozenset[str]:
    """Return the field names of a message in all versions, with those of nested structures."""
    names: set[str] = set()
    api = APIS[api_key]
    for version in range(api.oldest, api.newest + 1):
        stack = [_schema(api_key, version, direction)]
        while stack:
            for kind in kinds_of(stack.pop()):
                names.add(kind.name)
                if kind.entity is not None:
                    stack.append(kind.entity)
    return frozenset(names)


def check_names(api_key: int, direction: str, values: Mapping[str, Any]) -> None:
    """Raise TypeError for a field name that no version of the message has."""
    known = _names(api_key, direction)
    stack: list[Any] = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            unknown = set(value) - known
            if unknown:
                raise TypeError(f"{APIS[api_key].name} {direction} has no field {sorted(unknown)}")
            stack += value.values()
        elif isinstance(value, list | tuple | Each):
            stack += value
