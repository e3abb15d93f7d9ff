"""Random messages of each API, drawn by a seed from kio's schemas or from our own classes."""

import io
import random
from collections.abc import Callable
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer

from oncelog.wire.messages.control import _encode, _schema
from oncelog.wire.messages.schema import Kind, kinds_of
from oncelog.wire.primitives import MalformedFrame

ALPHABET = "ab-._é€𐍈"
ACCENTS = ALPHABET * 16
FIXED_NULLABLE = {"datetime_i64", "timedelta_i32", "timedelta_i64", "int64", "int32", "error_code"}


class Samples:
    """Random field values at the limits of their encodings, such as extreme integers and null."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return ACCENTS[: self.random.choice([0, 1, 5, 62, 127])]

    def nullable_text(self) -> str | None:
        return None if self.random.random() < 0.2 else self.text()

    def data(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 61, 126, 127, 128, 16384]))

    def nullable_data(self) -> bytes | None:
        return None if self.random.random() < 0.2 else self.data()

    def int16(self) -> int:
        return self.random.choice([0, 1, -1, 3, 87])  # error codes that every library knows

    def int32(self) -> int:
        return self.random.choice([0, 1, -1, 2**31 - 1, -(2**31), self.random.getrandbits(20)])

    def int64(self) -> int:
        return self.random.choice([0, 1, -1, 2**63 - 1, -(2**63), self.random.getrandbits(40)])

    def timestamp(self) -> int:
        return self.random.choice([-1, 0, 1, 1_700_000_000_123])

    def uuid(self) -> bytes:
        return self.random.choice([bytes(16), self.random.randbytes(16)])

    def some(self, make: Any, *, at_most: int = 3) -> list[Any]:
        return [make() for _ in range(self.random.randint(0, at_most))]

    def maybe(self, make: Any) -> Any:
        return make() if self.random.random() < 0.5 else None

    def endpoint(self) -> tuple[int, str, int, str | None]:
        return self.int32(), self.text(), self.int32(), self.nullable_text()

    def of_schema(self, cls: type) -> dict[str, Any]:
        """Return a random message of a kio class, as nested dictionaries."""
        message: dict[str, Any] = {}
        for kind in kinds_of(cls):
            may_be_null = kind.is_nullable and kind.wire_type not in FIXED_NULLABLE
            if may_be_null and self.random.random() < 0.2:
                message[kind.name] = None
            elif kind.is_array:
                message[kind.name] = self.some(lambda kind=kind: self._one(kind))
            else:
                message[kind.name] = self._one(kind)
        return message

    def _one(self, kind: Kind) -> Any:
        if kind.entity is not None:
            return self.of_schema(kind.entity)
        match kind.wire_type:
            case "string":
                return self.text()
            case "bytes" | "records":
                return self.data()
            case "uuid":
                return self.uuid()
            case "bool":
                return self.random.random() < 0.5
            case "float64":
                return 0.1
            case _:
                return self.random.choice([0, 1, 5, 100])


def join(pieces: list[Any]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


def through_kio(api_key: int, version: int, direction: str, data: bytes) -> bytes:
    """Decode a message by kio, and return kio's encoding of it."""
    cls = _schema(api_key, version, direction)
    message, used = entity_reader(cls)(data, 0)
    assert used == len(data)
    stream = io.BytesIO()
    entity_writer(cls)(stream, message)
    return stream.getvalue()


def sample_body(api_key: int, version: int, direction: str, samples: Samples) -> bytes:
    cls = _schema(api_key, version, direction)
    return _encode(api_key, version, direction, samples.of_schema(cls))


def through_kafka_python(cls: Any, version: int, data: bytes) -> bytes:
    message = cls.decode(data, version=version)
    message._header = None  # `decode` leaves out a field that `encode` needs
    return bytes(message.encode(version=version))


def names(version: int, s: Samples) -> tuple[str | None, bytes | None]:
    """Return a random topic as (name, id). From version 13 on, only the id is set (KIP-516)."""
    return (None, s.uuid()) if version >= 13 else (s.text(), None)


def check_ends(codec: Any, request: Any, response: Any, version: int) -> None:
    """Check that bytes after a request are ignored, and that bytes after a response are refused."""
    body = join(codec.encode_request(request, version))
    assert codec.decode_request(memoryview(body + b"\0\0\0"), version) == request
    body = join(codec.encode_response(response, version))
    with pytest.raises(MalformedFrame):
        codec.decode_response(memoryview(body + b"\0"), version)


def check_truncations(codec: Any, version: int, **makers: Callable[[int, Samples], Any]) -> None:
    """Check that each message made by `makers` is refused when it is truncated at any byte."""
    samples = Samples(7)
    for kind, make in makers.items():
        encode, decode = getattr(codec, f"encode_{kind}"), getattr(codec, f"decode_{kind}")
        value = make(version, samples)
        while not value.topics or len(body := join(encode(value, version))) > 3000:
            value = make(version, samples)
        for end in range(len(body)):
            with pytest.raises(MalformedFrame):
                decode(memoryview(body[:end]), version)
