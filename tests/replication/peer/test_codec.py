"""Test that a dataclass sent between brokers is decoded as encoded, and other bytes refused."""

from dataclasses import dataclass, field

import msgpack
import pytest

from oncelog.replication.messages import MalformedPeerMessage
from oncelog.replication.peer.codec import OMIT_DEFAULT, decode_message, encode_message


@dataclass(frozen=True, slots=True)
class Point:
    """A dataclass that is a field of another message."""

    x: int
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    number: int
    flag: bool
    raw: bytes
    points: tuple[Point, ...] = ()
    pair: tuple[int, str] = (0, "")
    table: dict[str, int] | None = None
    choice: Point | int = 0


WHOLE = Message(1, True, b"\0", (Point(1), Point(2, "b")), (3, "c"), {"d": 4}, Point(5))


@pytest.mark.parametrize("message", [WHOLE, Message(-1, False, b"")])
def test_peer_message_is_decoded_as_encoded(message: Message) -> None:
    assert decode_message(Message, encode_message(message)) == message


def test_peer_message_fields_with_a_default_may_be_missing_at_the_end() -> None:
    assert decode_message(Message, msgpack.packb([1, True, b""])) == Message(1, True, b"")  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Extended:
    """A message with two fields that an older release does not have."""

    number: int
    flag: bool = False
    label: str | None = field(default=None, metadata=OMIT_DEFAULT)
    pair: tuple[int, ...] = field(default=(), metadata=OMIT_DEFAULT)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (Extended(1), [1, False]),
        (Extended(1, label="a"), [1, False, "a"]),
        (Extended(1, pair=(2,)), [1, False, None, [2]]),
    ],
)
def test_peer_message_omits_later_fields_that_have_their_defaults(
    message: Extended, values: list[object]
) -> None:
    assert encode_message(message) == msgpack.packb(values)
    assert decode_message(Extended, encode_message(message)) == message


@pytest.mark.parametrize(
    "values",
    [
        7,
        [],
        [1, True],
        [1, 1, b""],  # an int is not a bool
        [True, True, b""],  # and a bool is not an int
        [1, True, "text"],
        [1, True, b"", [[1, 2]]],
        [1, True, b"", [[]]],
        [1, True, b"", [], [1]],
        [1, True, b"", [], [1, "a"], {"a": "b"}],
        [1, True, b"", [], [1, "a"], None, "neither"],
        [1, True, b"", [], [1, "a"], None, 0, "too many"],
    ],
)
def test_peer_message_with_wrong_values_is_refused_with_the_name_of_its_class(
    values: object,
) -> None:
    packed = msgpack.packb(values)
    assert packed is not None
    with pytest.raises(MalformedPeerMessage, match="Message"):
        decode_message(Message, packed)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x93\x01"])
def test_peer_message_of_other_bytes_than_msgpack_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedPeerMessage):
        decode_message(Message, payload)


def test_peer_message_type_with_an_unsupported_field_raises_a_type_error() -> None:
    @dataclass
    class Wrong:
        value: complex

    with pytest.raises(TypeError):
        decode_message(Wrong, b"\x91\x01")
