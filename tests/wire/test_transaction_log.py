"""Test that records of __transaction_state have Kafka's bytes, and are decoded back."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.messages.transaction_log import (
    TransactionLogValue,
    _any,
    decode_transaction_log_key,
    decode_transaction_log_value,
    encode_transaction_log_key,
    encode_transaction_log_value,
)
from oncelog.wire.primitives import MalformedFrame

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.builds(
    TransactionLogValue,
    producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=INT32,
    state=st.integers(-128, 127),
    partitions=st.none()
    | st.lists(st.tuples(NAMES, st.lists(INT32, max_size=4).map(tuple)), max_size=4).map(tuple),
    last_update_ms=INT64,
    start_ms=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    client_transaction_version=INT16,
    next_producer_epoch=INT16,
    last_producer_epoch=INT16,
)
ONGOING = TransactionLogValue(
    producer_id=4000,
    producer_epoch=7,
    timeout_ms=60_000,
    state=1,
    partitions=(("orders", (0, 2)),),
    last_update_ms=0x0102030405060708,
    start_ms=-1,
)


@given(VALUES)
def test_transaction_log_value_is_decoded_back(value: TransactionLogValue) -> None:
    assert decode_transaction_log_value(encode_transaction_log_value(value)) == value


@given(VALUES)
def test_transaction_log_value_of_version_0_loses_only_the_tagged_fields(
    value: TransactionLogValue,
) -> None:
    back = decode_transaction_log_value(encode_transaction_log_value(value, 0))
    for name in ("producer_id", "producer_epoch", "timeout_ms", "state", "partitions", "start_ms"):
        assert getattr(back, name) == getattr(value, name)
    assert back.previous_producer_id == back.next_producer_id == back.last_producer_epoch == -1


@given(NAMES)
def test_transaction_log_key_is_decoded_back(name: str) -> None:
    assert decode_transaction_log_key(encode_transaction_log_key(name)) == name


def test_transaction_log_bytes_equal_the_bytes_of_the_kafka_schema() -> None:
    assert encode_transaction_log_key("ab") == bytes.fromhex("0000 0002 6162")
    assert encode_transaction_log_value(ONGOING, 0) == bytes.fromhex(
        "0000 0000000000000fa0 0007 0000ea60 01"
        "00000001 0006 6f7264657273 00000002 00000000 00000002"
        "0102030405060708 ffffffffffffffff"
    )
    assert encode_transaction_log_value(ONGOING) == bytes.fromhex(
        "0001 0000000000000fa0 0007 0000ea60 01"
        "02 07 6f7264657273 03 00000000 00000002 00"
        "0102030405060708 ffffffffffffffff 00"
    )


def test_transaction_log_tagged_fields_are_in_the_order_of_kafka() -> None:
    value = TransactionLogValue(
        producer_id=1, producer_epoch=0, timeout_ms=1, state=0, partitions=None,
        last_update_ms=0, start_ms=-1,
        previous_producer_id=2, next_producer_id=3, client_transaction_version=2,
        next_producer_epoch=4,
    )  # fmt: skip
    assert encode_transaction_log_value(value).endswith(
        bytes.fromhex("04 00 08 0000000000000002 01 08 0000000000000003 02 02 0002 03 02 0004")
    )


@given(st.binary(max_size=80))
def test_transaction_log_value_of_any_bytes_is_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_transaction_log_key, decode_transaction_log_value):
        try:
            decode(data)
        except MalformedFrame:
            continue


@given(VALUES, st.data())
def test_transaction_log_value_that_is_cut_short_is_refused(
    value: TransactionLogValue, data: st.DataObject
) -> None:
    encoded = encode_transaction_log_value(value)
    end = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(MalformedFrame):
        decode_transaction_log_value(encoded[:end])


@given(VALUES, st.data())
def test_transaction_log_short_value_of_any_bytes_is_decoded_as_by_the_general_decoder(
    value: TransactionLogValue, data: st.DataObject
) -> None:
    """Short values have a fast decoder, and otherwise the general one is used."""
    encoded = bytearray(encode_transaction_log_value(value))
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(encoded) - 1), st.integers(0, 255)), max_size=3)
    ):
        encoded[position] = byte
    assert _outcome(decode_transaction_log_value, encoded) == _outcome(_any, encoded)


def _outcome(
    decode: Callable[[bytes], TransactionLogValue], data: bytearray
) -> TransactionLogValue | str:
    try:
        return decode(bytes(data))
    except MalformedFrame as error:
        return str(error)


@pytest.mark.parametrize("tags", ["01 04 01 00", "01 04 02 00 63", "02 03 02 00 01 04 02 00 63"])
def test_transaction_log_value_with_an_unknown_tagged_field_is_refused(tags: str) -> None:
    """A replica that ignored the field of a newer release would differ from the other replicas."""
    encoded = encode_transaction_log_value(ONGOING)
    with pytest.raises(MalformedFrame, match=r"tagged fields \[4\] are not known"):
        decode_transaction_log_value(encoded[:-1] + bytes.fromhex(tags))


@pytest.mark.parametrize("length", [0x7FFF, 0x8000])
def test_transaction_log_key_longer_than_its_length_is_refused(length: int) -> None:
    key = b"\0\0" + length.to_bytes(2, "big") + 0x8000 * b"x"
    with pytest.raises(MalformedFrame):
        decode_transaction_log_key(key)


@pytest.mark.parametrize("version", [-1, 2])
def test_transaction_log_value_of_an_unknown_version_is_refused(version: int) -> None:
    number = version.to_bytes(2, "big", signed=True)
    with pytest.raises(MalformedFrame):
        decode_transaction_log_value(number + encode_transaction_log_value(ONGOING)[2:])
    with pytest.raises(MalformedFrame):
        decode_transaction_log_key(number + b"\0\1a")
