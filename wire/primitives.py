"""Kafka's primitive types, read with all checks and written into a list.

A `Reader` never trusts a count or a length. Each is compared with the remaining bytes before an
object is created, so a frame cannot cause allocations larger than itself.
"""

import struct
from collections.abc import Callable
from typing import TypeVar

from .errors import InvalidRequest

Buffer = bytes | bytearray | memoryview
Value = TypeVar("Value")

STRING_BYTES_MAX = 0x7FFF  # of UTF-8, in all versions
TAGS_MAX = 64
# The limit for all arrays of one message, since an element costs more memory and time than its
# byte. An answer of a cluster may be ten times as long as a request to it.
ELEMENTS_MAX = 1_000_000
REQUEST_ELEMENTS_MAX = 100_000
_int8 = struct.Struct(">b")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")
_int64 = struct.Struct(">q")


class MalformedFrame(InvalidRequest):  # pyright: ignore[reportUntypedBaseClass]
    """The error of malformed bytes, for which a server closes the connection."""


class Reader:
    """A reader that goes through a message from front to back."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(
        self, buffer: memoryview, position: int = 0, elements_max: int = ELEMENTS_MAX
    ) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.elements_left = elements_max

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def _fixed(self, kind: struct.Struct) -> int:
        position = self.position
        self.position = end = position + kind.size
        if end > self.end:
            raise MalformedFrame("the message is cut short")
        return kind.unpack_from(self.buffer, position)[0]

    def int8(self) -> int:
        return self._fixed(_int8)

    def int16(self) -> int:
        """Read a signed integer of two bytes."""
        return self._fixed(_int16)

    def int32(self) -> int:
        """Read a signed integer of four bytes."""
        return self._fixed(_int32)

    def int64(self) -> int:
        """Read a signed integer of eight bytes."""
        return self._fixed(_int64)

    def unsigned_varint(self) -> int:
        """Read an unsigned varint of at most five bytes, the lowest seven bits first."""
        buffer, position = self.buffer, self.position
        if position < self.end and (byte := buffer[position]) < 0x80:  # almost all are this short
            self.position = position + 1
            return byte
        value = shift = 0
        while True:
            if position >= self.end or shift > 28:
                raise MalformedFrame("a varint has at most five bytes")
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                if value > 0xFFFFFFFF:
                    raise MalformedFrame("a varint has at most 32 bits")
                return value
            shift += 7

    def take(self, size_bytes: int) -> memoryview:
        """Return a view of the next `size_bytes` bytes, and continue after them."""
        position = self.position
        end = position + size_bytes
        if size_bytes < 0 or end > self.end:
            raise MalformedFrame(f"{size_bytes} bytes are announced, {self.remaining} are left")
        self.position = end
        return self.buffer[position:end]

    def uuid(self) -> bytes:
        """Read the 16 bytes of a UUID."""
        return bytes(self.take(16))

    def nullable_string(self, flexible: bool) -> str | None:
        """Read a string or null, compact in flexible versions."""
        length = self.unsigned_varint() - 1 if flexible else self.int16()
        if length == -1:
            return None
        if length > STRING_BYTES_MAX:
            raise MalformedFrame("a string has at most 32767 bytes")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame("a string is not UTF-8") from None

    def string(self, flexible: bool) -> str:
        """Read a string. Raises MalformedFrame for null."""
        value = self.nullable_string(flexible)
        if value is None:
            raise MalformedFrame("a string must not be null")
        return value

    def nullable_bytes(self, flexible: bool) -> memoryview | None:
        """Read a view of bytes, or null."""
        length = self.unsigned_varint() - 1 if flexible else self.int32()
        return None if length == -1 else self.take(length)

    def count(self, flexible: bool, element_bytes_min: int) -> int:
        """Read the length of an array, or -1 for null.

        Raises MalformedFrame if so many elements of at least `element_bytes_min` do not fit into
        the remaining bytes, or if the message has too many elements.
        """
        count = self.unsigned_varint() - 1 if flexible else self.int32()
        if count < -1 or count * element_bytes_min > self.end - self.position:
            raise MalformedFrame(f"{count} elements cannot stand in {self.remaining} bytes")
        self.elements_left -= count
        if self.elements_left < 0:
            raise MalformedFrame("too many array elements for one message")
        return count

    def length(self, flexible: bool, element_bytes_min: int) -> int:
        """Read the length of an array. Raises MalformedFrame for null."""
        count = self.count(flexible, element_bytes_min)
        if count < 0:
            raise MalformedFrame("an array must not be null")
        return count

    def array(
        self, flexible: bool, element_bytes_min: int, read: Callable[[], Value]
    ) -> list[Value]:
        """Read all elements of an array. Raises MalformedFrame for null."""
        return [read() for _ in range(self.length(flexible, element_bytes_min))]

    def tags(self) -> dict[int, memoryview]:
        """Read tagged fields by number, in ascending order (KIP-482)."""
        count = self.unsigned_varint()
        if count == 0:
            return {}
        if count > TAGS_MAX:
            raise MalformedFrame(f"a message has at most {TAGS_MAX} tagged fields")
        tags: dict[int, memoryview] = {}
        previous = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= previous:
                raise MalformedFrame("tagged fields stand in ascending order")
            previous = tag
            tags[tag] = self.take(self.unsigned_varint())
        return tags

    def finish(self) -> None:
        """Raise MalformedFrame if bytes follow the message."""
        if self.position != self.end:
            raise MalformedFrame(f"{self.remaining} bytes beyond the end of the message")


def unsigned_varint_at(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, next position) of an unsigned varint, for decoders that track the position.

    Raises MalformedFrame for more than 32 bits, IndexError at the end of the buffer.
    """
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    value = value & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 2
    byte = buffer[position + 2]  # lengths of batches mostly end here
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 3
    byte = buffer[position + 3]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 4
    byte = buffer[position + 4]
    if byte > 0x0F:
        raise MalformedFrame("a varint has at most five bytes, and 32 bits")
    return value | byte << 28, position + 5


def skip_tags_at(buffer: memoryview, position: int) -> int:
    """Return the position after tagged fields, which are all ignored."""
    if position < len(buffer) and buffer[position] == 0:
        return position + 1
    reader = Reader(buffer, position)
    reader.tags()
    return reader.position


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def encode_unsigned_varint(value: int) -> bytes:
    """Encode an unsigned varint, the lowest seven bits first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_varint(value: int) -> bytes:
    """Encode a zigzag varint, in which small numbers of either sign are short."""
    return encode_unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def encode_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else b"\xff\xff"
    data = value.encode()
    prefix = encode_unsigned_varint(len(data) + 1) if flexible else _int16.pack(len(data))
    return prefix + data


def encode_count(count: int, flexible: bool) -> bytes:
    """Encode the length of an array or of bytes, -1 for null."""
    return encode_unsigned_varint(count + 1) if flexible else _int32.pack(count)


def encode_tags(tags: list[tuple[int, bytes]]) -> bytes:
    """Encode tagged fields, which must be in ascending order."""
    parts = [encode_unsigned_varint(len(tags))]
    for tag, data in tags:
        parts += (encode_unsigned_varint(tag), encode_unsigned_varint(len(data)), data)
    return b"".join(parts)
