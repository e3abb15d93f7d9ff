"""Test that records of __consumer_offsets have the bytes that Apache Kafka 4.3 writes."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups.consumer.record_codec import (
    decode_consumer_key,
    encode_consumer_key,
)
from oncelog.coordinator.groups.consumer.records import ConsumerMemberKey
from oncelog.coordinator.groups.records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.wire.errors import InvalidRecord

# Written by the generated classes of kafka-group-coordinator 4.3.0.
OFFSET_KEY = "000100066772c3bcc39f0007666c696768747300000007"
LEGACY_OFFSET_KEY = "000000016700017400000001"
GROUP_KEY = "0002000167"
NEWER_GROUP_KEY = "0003000167"  # of KIP-848
OFFSET_VALUES = {
    0: "0000000000000000126700016d0000011f71fb04cb",
    1: "0001000000000000126700016d0000011f71fb04cb0000011f71fcb1ff",
    2: "0002000000000000126700016d0000011f71fb04cb",
    3: "000300000000000012670000000300016d0000011f71fb04cb",
    4: "0004000000000000126700000003026d0000011f71fb04cb0100100102030405060708090a0b0c0d0e0f10",
}
WITHOUT_ID = "00040000000000000000ffffffff01000000000000000100"
_HEAD = "0008636f6e73756d657200000005000572616e676500036d2d31"
_MEMBER = "00036d2d31000163000a2f3132372e302e302e31"
GROUP_VALUES = {
    0: f"0000{_HEAD}00000001{_MEMBER}00002710000000020102" + "0000000103",
    1: f"0001{_HEAD}00000001{_MEMBER}0000ea6000002710000000020102" + "0000000103",
    2: f"0002{_HEAD}000000000000006300000001{_MEMBER}0000ea6000002710000000020102" + "0000000103",
    3: f"0003{_HEAD}000000000000006300000001"
    "00036d2d31000169000163000a2f3132372e302e302e310000ea60000027100000000201020000000103",
    4: "000409636f6e73756d6572000000050672616e6765046d2d31000000000000006302046d2d31026902630b"
    "2f3132372e302e302e310000ea600000271003010202030000",
}
EMPTY_GROUP_VALUES = {
    0: "0000000000000000ffffffff00000000",
    1: "0001000000000000ffffffff00000000",
    2: "0002000000000000ffffffffffffffffffffffff00000000",
    3: "0003000000000000ffffffffffffffffffffffff00000000",
    4: "000401000000000000ffffffffffffffff0100",
}
TOPIC_ID = bytes(range(1, 17))
OFFSET = OffsetValue(4711, 3, "m", 1234567890123, 1234567999999, TOPIC_ID)
MEMBER = MemberValue("m-1", "i", "c", "/127.0.0.1", 60_000, 10_000, b"\x01\x02", b"\x03")
GROUP = GroupValue("consumer", 5, "range", "m-1", 99, (MEMBER,))


def test_offset_and_group_key_bytes_equal_the_kafka_bytes() -> None:
    key = OffsetKey("grüß", "flights", 7)
    assert encode_offset_key(*key).hex() == OFFSET_KEY
    assert encode_group_key("g").hex() == GROUP_KEY
    assert decode_key(bytes.fromhex(OFFSET_KEY)) == key
    assert decode_key(bytes.fromhex(LEGACY_OFFSET_KEY)) == OffsetKey("g", "t", 1)
    assert decode_key(bytes.fromhex(GROUP_KEY)) == GroupKey("g")


def test_record_key_of_another_type_decodes_to_none() -> None:
    assert decode_key(bytes.fromhex(NEWER_GROUP_KEY)) is None
    assert decode_key(b"\x7f\xff") is None and decode_key(b"\xff\xff") is None


@pytest.mark.parametrize("version", range(5))
def test_offset_record_of_every_version_is_decoded(version: int) -> None:
    expected = OFFSET._replace(
        leader_epoch=3 if version >= 3 else -1,
        expire_timestamp_ms=1234567999999 if version == 1 else -1,
        topic_id=TOPIC_ID if version == 4 else bytes(16),
    )
    assert decode_offset_value(bytes.fromhex(OFFSET_VALUES[version])) == expected


def test_offset_record_bytes_equal_the_kafka_bytes() -> None:
    assert encode_offset_value(OFFSET._replace(expire_timestamp_ms=-1)).hex() == OFFSET_VALUES[4]
    assert encode_offset_value(OFFSET).hex() == OFFSET_VALUES[1]
    assert encode_offset_value(OffsetValue(0, -1, "", 1)).hex() == WITHOUT_ID


@pytest.mark.parametrize("version", range(5))
def test_group_record_of_every_version_is_decoded(version: int) -> None:
    member = MEMBER._replace(
        group_instance_id="i" if version >= 3 else None,
        rebalance_timeout_ms=60_000 if version >= 1 else -1,
    )
    time_ms = 99 if version >= 2 else -1
    expected = GROUP._replace(current_state_timestamp_ms=time_ms, members=(member,))
    assert decode_group_value(bytes.fromhex(GROUP_VALUES[version])) == expected
    empty = decode_group_value(bytes.fromhex(EMPTY_GROUP_VALUES[version]))
    assert empty == GroupValue("", 0, None, None, -1, ())


def test_group_record_bytes_equal_the_kafka_bytes() -> None:
    assert encode_group_value(GROUP).hex() == GROUP_VALUES[3]
    assert encode_group_value(GroupValue("", 0, None, None, -1, ())).hex() == EMPTY_GROUP_VALUES[3]


def test_offset_and_group_records_with_unknown_tags_are_decoded() -> None:
    plain = bytes.fromhex(WITHOUT_ID)
    tagged = plain[:-1] + b"\x01\x09\x02??"
    assert decode_offset_value(tagged) == decode_offset_value(plain)


@pytest.mark.parametrize("version", range(5))
def test_offset_and_group_records_that_are_truncated_are_refused(version: int) -> None:
    for text, decode in ((OFFSET_VALUES, decode_offset_value), (GROUP_VALUES, decode_group_value)):
        whole = bytes.fromhex(text[version])
        for size in range(len(whole)):
            with pytest.raises(InvalidRecord):
                decode(whole[:size])
    for key in (OFFSET_KEY, LEGACY_OFFSET_KEY, GROUP_KEY):
        whole = bytes.fromhex(key)
        for size in range(len(whole)):
            with pytest.raises(InvalidRecord):
                decode_key(whole[:size])
    with pytest.raises(InvalidRecord):
        decode_key(None)


@given(st.binary(max_size=60), st.sampled_from([b"", b"\0\1", b"\0\2", b"\0\3", b"\0\4"]))
def test_offset_and_group_records_of_any_bytes_are_decoded_or_refused(
    data: bytes, prefix: bytes
) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        with suppress(InvalidRecord):
            decode(prefix + data)


texts = st.text(max_size=20)
int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


@given(
    st.builds(
        OffsetValue, int64, int32, texts, int64, st.just(-1), st.binary(min_size=16, max_size=16)
    )
)
def test_offset_record_is_decoded_as_encoded(value: OffsetValue) -> None:
    assert decode_offset_value(encode_offset_value(value)) == value


@given(
    st.builds(
        GroupValue, texts, int32, st.none() | texts, st.none() | texts, int64,
        st.lists(
            st.builds(
                MemberValue, texts, st.none() | texts, texts, texts, int32, int32,
                st.binary(max_size=20), st.binary(max_size=20),
            ),
            max_size=3,
        ).map(tuple),
    )
)  # fmt: skip
def test_group_record_is_decoded_as_encoded(value: GroupValue) -> None:
    assert decode_group_value(encode_group_value(value)) == value


@pytest.mark.parametrize("decode", [decode_key, decode_consumer_key])
def test_record_keys_that_are_long_are_not_cached(decode: Callable[[bytes], object]) -> None:
    """The cache holds thousands of keys, and a long key may have 32 kB."""
    short, long = [
        encode_consumer_key(ConsumerMemberKey("g", "m" * size))
        if decode is decode_consumer_key
        else encode_group_key("g" * size)
        for size in (10, 20_000)
    ]
    assert decode(short) is decode(short)
    assert decode(long) == decode(long) and decode(long) is not decode(long)
