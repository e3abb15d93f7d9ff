"""The encoding of dataclasses as msgpack, for small messages between brokers.

A message is a frozen dataclass with fields of int, bool, str, bytes, float, None, unions of these,
tuples (of one element type, or of fixed types), dicts of plain keys, and other such dataclasses. A
message is encoded as the list of its field values in order. Fields with a default may be missing at
the end, so new fields can be added. An older release refuses more fields than it has, so a later
field is declared with OMIT_DEFAULT and is not written while it has its default. Every value is
checked against its annotation and every length against a limit. A faulty peer therefore cannot
cause an object that does not match its class.
"""

import types
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import takewhile
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgpack

from ..messages import MalformedPeerMessage

ELEMENTS_MAX = 1_000_000
_PLAIN = frozenset((int, bool, str, bytes, float, type(None)))
_OMITS_DEFAULT = "omits default"
OMIT_DEFAULT = {_OMITS_DEFAULT: True}  # the metadata of a later field, which has a default
Message = TypeVar("Message")


def encode_message(message: object) -> bytes:
    """Encode a dataclass instance."""
    packed = msgpack.packb(_plain(message))
    assert packed is not None  # None is possible only for streaming
    return packed


def decode_message(cls: type[Message], payload: bytes) -> Message:
    """Decode an instance of cls. Raises MalformedPeerMessage with the name of the faulty field."""
    try:
        values = msgpack.unpackb(
            payload,
            use_list=False,
            strict_map_key=False,
            max_array_len=ELEMENTS_MAX,
            max_map_len=ELEMENTS_MAX,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedPeerMessage(f"{cls.__name__}: not msgpack: {error}") from error
    return _reader(cls)(values, cls.__name__)


def _plain(value: object) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    names = _names(kind)
    if names is not None:
        for name, default in _later_fields(kind):
            if getattr(value, name) != default:
                break
            names = names[:-1]
        return [
            item if type(item := getattr(value, name)) in _PLAIN else _plain(item) for name in names
        ]
    if isinstance(value, (tuple, list, frozenset, set)):
        items = cast(Collection[object], value)
        return list(items) if _PLAIN.issuperset(map(type, items)) else [_plain(i) for i in items]
    if isinstance(value, dict):
        entries = cast(dict[object, object], value)
        return {_plain(key): _plain(item) for key, item in entries.items()}
    return value


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, or None for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@cache
def _later_fields(kind: type) -> tuple[tuple[str, object], ...]:
    """Return the name and default of the last fields with OMIT_DEFAULT, the last field first."""
    later = takewhile(lambda each: _OMITS_DEFAULT in each.metadata, reversed(fields(kind)))
    return tuple((field.name, field.default) for field in later)


_Reader = Callable[[Any, str], Any]


@cache
def _reader(annotation: Any) -> _Reader:
    """Return the function that checks and creates a value of this type."""
    if is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass_reader(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        if _PLAIN.issuperset(arguments):
            return _exact_reader(*arguments)
        return _union_reader([_reader(argument) for argument in arguments])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence_reader(_reader(arguments[0]), arguments[0])
    if origin is tuple:
        return _fixed_reader([_reader(argument) for argument in arguments])
    if origin is dict:
        return _dict_reader(_reader(arguments[0]), _reader(arguments[1]))
    if annotation in _PLAIN:
        return _exact_reader(annotation)
    raise TypeError(f"{annotation} cannot travel between brokers")


def _exact_reader(*expected: type) -> _Reader:
    names = " or ".join(kind.__name__ for kind in expected)

    def read(value: Any, where: str) -> Any:
        if type(value) not in expected:
            raise MalformedPeerMessage(f"{where}: {type(value).__name__}, not {names}")
        return value

    return read


def _union_reader(readers: list[_Reader]) -> _Reader:
    def read(value: Any, where: str) -> Any:
        for reader in readers:
            try:
                return reader(value, where)
            except MalformedPeerMessage:
                continue
        raise MalformedPeerMessage(f"{where}: no member of the union fits")

    return read


def _sequence_reader(item: _Reader, annotation: Any) -> _Reader:
    only = {annotation} if annotation in _PLAIN else None

    def read(value: Any, where: str) -> Any:
        if value.__class__ is not tuple:
            raise MalformedPeerMessage(f"{where}: expected an array")
        if set(map(type, value)) == only:  # the common case for long arrays of numbers
            return value
        return tuple([item(element, where) for element in value])

    return read


def _fixed_reader(items: list[_Reader]) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if value.__class__ is not tuple or len(value) != len(items):
            raise MalformedPeerMessage(f"{where}: expected {len(items)} values")
        return tuple([item(element, where) for item, element in zip(items, value, strict=True)])

    return read


def _dict_reader(key: _Reader, item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if value.__class__ is not dict:
            raise MalformedPeerMessage(f"{where}: expected a map")
        return {key(k, where): item(v, where) for k, v in value.items()}

    return read


def _dataclass_reader(cls: type) -> _Reader:
    hints = get_type_hints(cls)
    members = [(field.name, _reader(hints[field.name])) for field in fields(cls)]
    required = sum(
        field.default is MISSING and field.default_factory is MISSING for field in fields(cls)
    )

    def read(value: Any, where: str) -> Any:
        if value.__class__ is not tuple or not required <= len(value) <= len(members):
            raise MalformedPeerMessage(f"{where}: expected {required} to {len(members)} values")
        return cls(
            **{
                name: reader(element, f"{where}.{name}")
                for (name, reader), element in zip(members, value, strict=False)
            }
        )

    return read
