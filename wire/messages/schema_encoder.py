"""Encoders generated from kio's message classes, once for each, at its first use.

kio's own writer copies through a stream, field by field, and requires rich types
(docs/decisions/0001). Here adjacent fields of fixed size are encoded by one struct.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

from ...runtime.steps import StepCounter, Steps
from ..primitives import encode_count, encode_string, encode_tags
from .schema import FIXED, NO_UUID, Kind, kinds_of, steps_of, struct_of

ITEMS_AT_ONCE_MAX = 100  # for an array; about 0.5 ms
CHUNKS_AT_ONCE_MAX = 2_000
ITEMS_PER_STEP = 32  # for all arrays together, since some items may be costly
Item = TypeVar("Item")
Made_co = TypeVar("Made_co", covariant=True)


class TooLargeAtOnce(Exception):
    """The error of a message that must be encoded in steps."""


class ShortChunks(list[bytes]):
    """The encoded pieces of a short message.

    A long array raises TooLargeAtOnce, and so does an array after CHUNKS_AT_ONCE_MAX pieces.
    """


class SlicedChunks(list[bytes]):
    """The encoded pieces of a message that is encoded in steps."""

    def __init__(self) -> None:
        super().__init__()
        self._counter = StepCounter(ITEMS_PER_STEP)
        self._pieces: list[bytes] = []  # the results of earlier steps

    def ends_step(self) -> bool:
        """Count an item of an array, and return whether the encoder must yield now."""
        if not self._counter.ends_step():
            return False
        self._pieces.append(b"".join(self))
        self.clear()
        return True

    def joined(self) -> bytes:
        return b"".join((*self._pieces, *self))


class Each(Generic[Made_co]):
    """An array of a response whose items `make` creates one by one during the encoding.

    `make` may be called more than once for an item, and must not raise.
    """

    __slots__ = ("_items", "_make")

    def __init__(self, make: Callable[[Item], Made_co], items: Collection[Item]) -> None:
        self._make = make
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Made_co]:
        return map(self._make, self._items)


Encode = Callable[[Any, list[bytes]], None]
EncodeSteps = Callable[[Any, SlicedChunks], Steps[None]]
Get = Callable[[str, Any], Any]


@cache
def encoder_of(cls: type[Any]) -> Encode:
    """Return encode(values, chunks), which appends to `chunks` the bytes of a mapping or message.

    An absent field gets the schema's default. A name that the class lacks is ignored here. The type
    stubs check all names.
    """
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    steps = [_step_encoder(run, flexible) for run in steps_of(cls)]
    has_tags = any(kind.tag is not None for kind in kinds_of(cls))
    encode_tagged = _tag_encoder(cls)

    def encode(values: Any, chunks: list[bytes]) -> None:
        get = _getter(values)
        for step in steps:
            step(get, chunks)
        if has_tags:
            encode_tagged(get, chunks)
        elif flexible:
            chunks.append(b"\0")

    return encode


@cache
def steps_encoder_of(cls: type[Any]) -> EncodeSteps:
    """Return an encoder for messages of a class that yields after some items of long arrays."""
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    plan = [(_step_encoder(run, flexible), run[0]) for run in steps_of(cls)]
    encode_tagged = _tag_encoder(cls)

    def encode(values: Any, chunks: SlicedChunks) -> Steps[None]:
        get = _getter(values)
        for step, array in plan:
            items = get(array.name, array.default) if array.is_long_array else None
            if not items:
                step(get, chunks)
                continue
            encode_item = None if array.entity is None else steps_encoder_of(array.entity)
            encode_one = _value_encoder(array, flexible)
            chunks.append(encode_count(len(items), flexible))
            for item in items:
                if encode_item is None:
                    encode_one(item, chunks)
                else:
                    yield from encode_item(item, chunks)
                if chunks.ends_step():
                    yield
        if flexible:
            encode_tagged(get, chunks)

    return encode


def _tag_encoder(cls: type[Any]) -> Callable[[Get, list[bytes]], None]:
    flexible: bool = cls.__flexible__  # type: ignore[attr-defined]
    kinds = {kind.tag: kind for kind in kinds_of(cls) if kind.tag is not None}
    tagged = [(t, k.name, k.default, _field_encoder(k, flexible)) for t, k in sorted(kinds.items())]

    def encode_tagged(get: Get, chunks: list[bytes]) -> None:
        tags: list[tuple[int, bytes]] = []
        for tag, name, default, encode_field in tagged:
            value = get(name, default)
            if not _is_default(value, default):
                inner: list[bytes] = []
                encode_field(value, inner)
                tags.append((tag, b"".join(inner)))
        chunks.append(encode_tags(tags) if tags else b"\0")

    return encode_tagged


def _step_encoder(run: tuple[Kind, ...], flexible: bool) -> Callable[[Get, list[bytes]], None]:
    if run[0].is_fixed:
        pack = struct_of(run).pack
        pairs = [(kind.name, kind.default) for kind in run]
        return lambda get, chunks: chunks.append(pack(*[get(*pair) for pair in pairs]))
    name, default = run[0].name, run[0].default
    encode_field = _field_encoder(run[0], flexible)
    return lambda get, chunks: encode_field(get(name, default), chunks)


def _getter(values: Any) -> Get:
    if values.__class__ is dict:  # the usual case, which is far faster to test than the next line
        return values.get
    if isinstance(values, Mapping):
        return cast(Mapping[str, Any], values).get
    return lambda name, default: getattr(values, name, default)


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(default, dict) and value is not None:
        get = _getter(value)
        return all(
            get(name, inner) == inner for name, inner in cast(dict[str, Any], default).items()
        )
    return value is None if default is None else value == default or value is None


def _field_encoder(kind: Kind, flexible: bool) -> Encode:
    one = _value_encoder(kind, flexible)
    if not kind.is_array:
        return one
    code = FIXED.get(kind.wire_type) if kind.entity is None else None

    def encode_array(values: Any, chunks: list[bytes]) -> None:
        if values is None:
            if not kind.is_nullable:
                raise TypeError(f"{kind.name} must not be null")
            chunks.append(encode_count(-1, flexible))
            return
        if type(chunks) is ShortChunks and (
            len(values) > ITEMS_AT_ONCE_MAX or len(chunks) > CHUNKS_AT_ONCE_MAX
        ):
            raise TooLargeAtOnce
        chunks.append(encode_count(len(values), flexible))
        if code is not None:
            chunks.append(struct.pack(f">{len(values)}{code}", *values))
            return
        for value in values:
            one(value, chunks)

    return encode_array


def _value_encoder(kind: Kind, flexible: bool) -> Encode:
    wire_type = kind.wire_type
    if kind.entity is not None:
        encode_entity = encoder_of(kind.entity)
        if not kind.is_nullable or kind.is_array or kind.tag is not None:
            return encode_entity

        def encode_nullable(value: Any, chunks: list[bytes]) -> None:
            chunks.append(b"\xff" if value is None else b"\x01")  # KIP-893
            if value is not None:
                encode_entity(value, chunks)

        return encode_nullable
    if wire_type in FIXED:
        pack = struct.Struct(">" + FIXED[wire_type]).pack
        return lambda value, chunks: chunks.append(pack(value))
    if wire_type == "uuid":
        return _encode_uuid
    if wire_type == "string":
        is_nullable = kind.is_nullable and not kind.is_array

        def encode_text(value: Any, chunks: list[bytes]) -> None:
            if value is None and not is_nullable:
                raise TypeError(f"{kind.name} must not be null")
            chunks.append(encode_string(value, flexible))

        return encode_text
    if wire_type in ("bytes", "records"):

        def encode_bytes(value: Any, chunks: list[bytes]) -> None:
            if value is None:
                chunks.append(encode_count(-1, flexible))
            else:
                chunks += (encode_count(len(value), flexible), bytes(value))

        return encode_bytes
    raise TypeError(f"{kind.name}: wire type {wire_type} is not known")


def _encode_uuid(value: bytes | None, chunks: list[bytes]) -> None:
    if value is not None and len(value) != 16:
        raise TypeError("a uuid has 16 bytes")
    chunks.append(value or NO_UUID)
