"""Decoders generated from kio's message classes, once for each, at its first use.

kio's own reader is fast, but it trusts the lengths in a frame (docs/decisions/0001). The decoders
here use a `Reader`, so every count and length is checked against the remaining bytes.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, cast

from ...runtime.steps import StepCounter, Steps
from ..primitives import MalformedFrame, Reader
from .schema import FIXED, Kind, kinds_of, steps_of, struct_of
from .schema_encoder import encoder_of

ITEMS_PER_STEP = 50  # for all arrays together; about 0.3 ms


class SlicedReader(Reader):
    """A reader with the item count that tells a decoder in steps when to yield."""

    __slots__ = ("counter",)

    def __init__(self, buffer: memoryview, elements_max: int) -> None:
        super().__init__(buffer, elements_max=elements_max)
        self.counter = StepCounter(ITEMS_PER_STEP)


Decode = Callable[[Reader], Any]
DecodeSteps = Callable[[SlicedReader], Steps[Any]]


class Message:
    """A decoded message, with the fields of kio's class as attributes."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = type(self).__slots__
        inside = ", ".join(f"{name}={getattr(self, name, None)!r}" for name in names)
        return f"{type(self).__name__}({inside})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in type(self).__slots__
        )


@cache
def decoder_of(cls: type[Any]) -> Decode:
    """Return decode(reader), which returns a `Message` and raises MalformedFrame."""
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    message = _message_of(cls)
    steps = [_step_decoder(run, flexible) for run in steps_of(cls)]
    decode_tagged = _tag_decoder(cls)

    def decode(reader: Reader) -> Any:
        value = message()
        for step in steps:
            step(value, reader)
        if flexible:
            decode_tagged(value, reader)
        return value

    return decode


@cache
def steps_decoder_of(cls: type[Any]) -> DecodeSteps:
    """Return a decoder for messages of a class that yields after some items of long arrays."""
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    message = _message_of(cls)
    plan = [(_step_decoder(run, flexible), run[0]) for run in steps_of(cls)]
    decode_tagged = _tag_decoder(cls)

    def decode(reader: SlicedReader) -> Steps[Any]:
        value = message()
        for step, array in plan:
            if not array.is_long_array:
                step(value, reader)
                continue
            decode_one, size_min = _value_decoder(array, flexible)
            count = reader.count(flexible, size_min)
            if count < 0 and not array.is_nullable:
                raise MalformedFrame(f"{array.name} must not be null")
            decode_item = None if array.entity is None else steps_decoder_of(array.entity)
            items: list[Any] = []
            for _ in range(count):
                if decode_item is None:
                    items.append(decode_one(reader))
                else:
                    items.append((yield from decode_item(reader)))
                if reader.counter.ends_step():
                    yield
            setattr(value, array.name, None if count < 0 else items)
        if flexible:
            decode_tagged(value, reader)
        return value

    return decode


@cache
def _message_of(cls: type[Any]) -> type[Message]:
    return type(cls.__name__, (Message,), {"__slots__": tuple(k.name for k in kinds_of(cls))})


def _tag_decoder(cls: type[Any]) -> Callable[[Any, Reader], None]:
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    kinds = kinds_of(cls)
    tagged = {k.tag: (k.name, _field_decoder(k, flexible)) for k in kinds if k.tag is not None}
    defaults = [(k.name, k.default, k.entity) for k in kinds if k.tag is not None]

    def decode_tagged(value: Any, reader: Reader) -> None:
        for name, default, entity in defaults:
            setattr(value, name, _default_value(default, entity))
        for tag, data in reader.tags().items():
            known = tagged.get(tag)
            if known is not None:
                name, decode_field = known
                inner = Reader(data)
                inner.elements_left = reader.elements_left
                setattr(value, name, decode_field(inner))
                inner.finish()
                reader.elements_left = inner.elements_left

    return decode_tagged


def _step_decoder(run: tuple[Kind, ...], flexible: bool) -> Callable[[Any, Reader], None]:
    if run[0].is_fixed:
        layout = struct_of(run)
        names, size, unpack = [kind.name for kind in run], layout.size, layout.unpack

        def decode_run(value: Any, reader: Reader) -> None:
            for name, item in zip(names, unpack(reader.take(size)), strict=True):
                setattr(value, name, item)

        return decode_run
    name, decode_field = run[0].name, _field_decoder(run[0], flexible)
    return lambda value, reader: setattr(value, name, decode_field(reader))


def _default_value(default: Any, entity: type[Any] | None) -> Any:
    if isinstance(default, list):
        return []
    if isinstance(default, dict) and entity is not None:
        chunks: list[bytes] = []
        encoder_of(entity)(default, chunks)
        return decoder_of(entity)(Reader(memoryview(b"".join(chunks))))
    return cast(Any, default)


def _field_decoder(kind: Kind, flexible: bool) -> Decode:
    one, size_min = _value_decoder(kind, flexible)
    if not kind.is_array:
        return one
    code = FIXED.get(kind.wire_type) if kind.entity is None else None

    def decode_array(reader: Reader) -> Any:
        count = reader.count(flexible, size_min)
        if count < 0:
            if kind.is_nullable:
                return None
            raise MalformedFrame(f"{kind.name} must not be null")
        if code is not None:
            return list(struct.unpack(f">{count}{code}", reader.take(count * size_min)))
        return [one(reader) for _ in range(count)]

    return decode_array


def _value_decoder(kind: Kind, flexible: bool) -> tuple[Decode, int]:
    """Return the decoder of a field's values, and the minimum size of a value in bytes.

    For an array, both are those of an item.
    """
    wire_type = kind.wire_type
    if kind.entity is not None:
        return _entity_decoder(kind), smallest_of(kind.entity)
    if wire_type in FIXED:
        fixed = struct.Struct(">" + FIXED[wire_type])
        size, unpack = fixed.size, fixed.unpack

        def decode_fixed(reader: Reader) -> Any:
            return unpack(reader.take(size))[0]

        return decode_fixed, size
    if wire_type == "uuid":
        return Reader.uuid, 16
    is_nullable = kind.is_nullable and not kind.is_array
    if wire_type == "string":
        if is_nullable:
            return (lambda reader: reader.nullable_string(flexible)), 1 if flexible else 2
        return (lambda reader: reader.string(flexible)), 1 if flexible else 2

    def decode_bytes(reader: Reader) -> Any:
        view = reader.nullable_bytes(flexible)
        if view is None and not is_nullable and wire_type != "records":
            raise MalformedFrame(f"{kind.name} must not be null")
        return None if view is None else bytes(view)

    return decode_bytes, 1 if flexible else 4


def _entity_decoder(kind: Kind) -> Decode:
    entity = kind.entity
    assert entity is not None
    decode_entity = decoder_of(entity)
    if not kind.is_nullable or kind.is_array or kind.tag is not None:
        return decode_entity

    def decode_nullable(reader: Reader) -> Any:
        return None if reader.int8() < 0 else decode_entity(reader)

    return decode_nullable


@cache
def smallest_of(cls: type[Any]) -> int:
    """Return the minimum size of a message of this class in bytes, at least 1."""
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    total = 1 if flexible else 0
    for kind in kinds_of(cls):
        if kind.tag is not None:
            continue
        if kind.is_array:
            total += 1 if flexible else 4
        elif kind.is_nullable and kind.entity is not None:
            total += 1
        else:
            total += _value_decoder(kind, flexible)[1]
    return max(1, total)
