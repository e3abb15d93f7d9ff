"""The form of a message, as kio describes it, from which the codecs are generated.

kio has Kafka's schemas as dataclasses, with fields in order, wire types, tags and defaults. Values
are plain here. They are int (also for error codes, and for durations and timestamps in ms), str,
bool, bytes (16 for a uuid), None, lists, and messages.
"""

import struct
import types
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from typing import Any, Union, cast, get_args, get_origin
from uuid import UUID

NO_UUID = bytes(16)
FIXED = {
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


class Kind:
    """The type of a message field, as the annotation and metadata of kio's class describe it."""

    __slots__ = (
        "default",
        "entity",
        "is_array",
        "is_fixed",
        "is_long_array",
        "is_nullable",
        "name",
        "tag",
        "wire_type",
    )

    def __init__(self, field: Field[Any]) -> None:
        self.name = field.name
        self.tag: int | None = field.metadata.get("tag")
        annotation, self.is_nullable = _without_none(field.type)
        self.is_array = get_origin(annotation) is tuple
        if self.is_array:
            annotation, _ = _without_none(get_args(annotation)[0])
        self.entity: type[Any] | None = (
            annotation if isinstance(annotation, type) and is_dataclass(annotation) else None
        )
        self.wire_type: str = field.metadata.get("kafka_type", "")
        # A uuid counts as not fixed.
        has_fixed_size = self.wire_type in FIXED and self.entity is None
        self.is_fixed = has_fixed_size and not self.is_array
        self.is_long_array = self.is_array and not has_fixed_size  # each item is encoded separately
        self.default = self._default_of(field)

    def _default_of(self, field: Field[Any]) -> Any:
        if field.default is not MISSING:
            return _plain(field.default, self.wire_type)
        if self.is_array:
            return []
        if self.entity is not None:
            return None
        empty: dict[str, Any] = {"string": "", "bytes": b"", "records": None, "uuid": NO_UUID}
        return empty.get(self.wire_type, False if self.wire_type == "bool" else 0)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [argument for argument in get_args(annotation) if argument is not type(None)]
        return inner[0], True
    return annotation, False


def _plain(value: Any, wire_type: str) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, tuple):
        return [_plain(item, wire_type) for item in cast(tuple[Any, ...], value)]
    if is_dataclass(value):
        # The default of a struct has all of its fields at their defaults.
        return {f.name: _plain(getattr(value, f.name), "") for f in fields(value)}
    if isinstance(value, bool):
        return value
    if value is None:
        return NO_UUID if wire_type == "uuid" else -1 if wire_type == "datetime_i64" else None
    if wire_type == "error_code":
        return int(getattr(value, "value", value))
    return value


@cache
def kinds_of(cls: type[Any]) -> tuple[Kind, ...]:
    """Return the fields of a kio class, in order."""
    return tuple(Kind(field) for field in fields(cls))


def steps_of(cls: type[Any]) -> list[tuple[Kind, ...]]:
    """Return the untagged fields of a kio class in groups, in the order of the encoding.

    Adjacent fields of fixed size are one group. Each other field is a group of its own.
    """
    plain = [kind for kind in kinds_of(cls) if kind.tag is None]
    steps: list[tuple[Kind, ...]] = []
    for is_fixed, run in groupby(plain, key=lambda kind: kind.is_fixed):
        kinds = tuple(run)
        steps += [kinds] if is_fixed else [(kind,) for kind in kinds]
    return steps


def struct_of(run: tuple[Kind, ...]) -> struct.Struct:
    """Return the struct that packs a group of adjacent fields of fixed size."""
    return struct.Struct(">" + "".join(FIXED[kind.wire_type] for kind in run))
