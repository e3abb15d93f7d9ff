"""Test that records of consumer groups have the bytes that Apache Kafka writes."""

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups.consumer.record_codec import (
    decode_consumer_key,
    decode_consumer_value,
    encode_consumer_key,
    encode_consumer_value,
)
from oncelog.coordinator.groups.consumer.records import (
    ClassicMetadata,
    ConsumerKey,
    ConsumerMember,
    ConsumerMemberKey,
    ConsumerValue,
    CurrentAssignment,
    CurrentAssignmentKey,
    GroupEpoch,
    GroupEpochKey,
    GroupTopics,
    GroupTopicsKey,
    ResolvedPattern,
    ResolvedPatternKey,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)
from oncelog.wire.errors import InvalidRecord

WRITTEN_BY_KAFKA = [
    (int(kind), bytes.fromhex(key), None if value == "-" else bytes.fromhex(value))
    for kind, key, value in (
        line.split()
        for line in (Path(__file__).parent / "records_of_kafka.txt").read_text().splitlines()
        if not line.startswith("#")
    )
]
MEMBER = ConsumerMember("i", "r", "c", "/h", ("a", "b"), "x.*", 5, "range")
CLASSIC = ClassicMetadata(45_000, (("range", b"\1\2\3"),))
ONE, THREE = bytes(7) + b"\1" + bytes(7) + b"\2", bytes(7) + b"\3" + bytes(7) + b"\4"
MEMBER_KEY = ConsumerMemberKey("g", "m")
CURRENT_KEY = CurrentAssignmentKey("g", "m")
# Written by the generated classes of kafka-group-coordinator 4.4.0.
MADE_BY_KAFKA: list[tuple[ConsumerKey, ConsumerValue, str]] = [
    (GroupEpochKey("g"), GroupEpoch(7), "00000000000700"),
    (
        MEMBER_KEY,
        MEMBER,
        "0000026902720263032f68030261026204782e2a000000050672616e676501000100",
    ),
    (
        MEMBER_KEY,
        ConsumerMember("i", "r", "c", "/h", ("a", "b"), "x.*", 5, "range", CLASSIC),
        "0000026902720263032f68030261026204782e2a000000050672616e6765"
        "010012010000afc8020672616e6765040102030000",
    ),
    (
        MEMBER_KEY,
        ConsumerMember("i", "r", "c", "/h", ("a", "b"), "x.*", 5, "range", ClassicMetadata(0, ())),
        "0000026902720263032f68030261026204782e2a000000050672616e676500",
    ),
    (ResolvedPatternKey("g", "a"), ResolvedPattern(("a",), 9, 10),
     "0000020261000000000000000900" "0000000000000a00"),
]  # fmt: skip
WITHOUT_EPOCHS_OF_REVOKED = (
    "00000000000300000002010200000000000000010000000000000002030000000000000005010009030000000300000002"
    "020000000000000003000000000000000402000000010000"
)


def test_consumer_group_records_of_kafka_are_reencoded_to_the_same_bytes() -> None:
    assert {kind for kind, _, _ in WRITTEN_BY_KAFKA} == {3, 5, 6, 7, 8, 16}
    assert len(WRITTEN_BY_KAFKA) == 79
    for kind, key_bytes, value_bytes in WRITTEN_BY_KAFKA:
        key = decode_consumer_key(key_bytes)
        assert key is not None and encode_consumer_key(key) == key_bytes
        assert int.from_bytes(key_bytes[:2], "big") == kind
        if value_bytes is not None:
            value = decode_consumer_value(key, value_bytes)
            assert encode_consumer_value(key, value) == value_bytes


def test_consumer_group_records_of_kafka_decode_to_the_content_that_kafka_tools_print() -> None:
    found: dict[str, Any] = {}
    for _, key_bytes, value_bytes in WRITTEN_BY_KAFKA:
        key = decode_consumer_key(key_bytes)
        if key is not None and key.group_id == "c-static" and value_bytes is not None:
            found[type(key).__name__] = decode_consumer_value(key, value_bytes)
    topic_id = bytes.fromhex("2775e77498f143968e5e4988a63d6227")
    assert found == {
        "ConsumerMemberKey": ConsumerMember(
            "i1", None, "consumer-c-static-i1", "/127.0.0.1", ("t1",), "", 300_000, None
        ),
        "GroupEpochKey": GroupEpoch(3),
        "TargetAssignmentKey": TargetAssignment({topic_id: frozenset({0, 1, 2})}),
        "TargetEpochKey": TargetEpoch(2, 1795717696601),
        "CurrentAssignmentKey": CurrentAssignment(-2, 0, 0, {topic_id: {0: 0, 1: 0, 2: 0}}, {}),
    }


@pytest.mark.parametrize("key, value, text", MADE_BY_KAFKA)
def test_consumer_group_value_bytes_equal_those_of_the_classes_of_kafka(
    key: ConsumerKey, value: ConsumerValue, text: str
) -> None:
    assert encode_consumer_value(key, value).hex() == text
    assert decode_consumer_value(key, bytes.fromhex(text)) == value


def test_partitions_pending_revocation_without_epochs_get_the_member_epoch() -> None:
    value = decode_consumer_value(CURRENT_KEY, bytes.fromhex(WITHOUT_EPOCHS_OF_REVOKED))
    assert value == CurrentAssignment(3, 2, 1, {ONE: {0: 3, 5: 2}}, {THREE: {1: 3}})


def test_partitions_pending_revocation_of_an_absent_static_member_get_epoch_zero() -> None:
    away = "0000fffffffe" + WITHOUT_EPOCHS_OF_REVOKED[12:]
    value = decode_consumer_value(CURRENT_KEY, bytes.fromhex(away))
    assert isinstance(value, CurrentAssignment) and value.pending_revocation == {THREE: {1: 0}}


def test_group_topics_record_of_an_older_release_is_decoded_without_its_content() -> None:
    key = decode_consumer_key(bytes.fromhex("0004000167"))
    assert key == GroupTopicsKey("g")
    kafkas = "00000200000000000000010000000000000002026100000003010000"
    assert decode_consumer_value(GroupTopicsKey("g"), bytes.fromhex(kafkas)) == GroupTopics()


@pytest.mark.parametrize("kind", [0, 1, 2, 9, 10, 15, 17, 23, 0x7FFF, -1])
def test_record_key_of_another_type_is_no_consumer_group_key(kind: int) -> None:
    assert decode_consumer_key(kind.to_bytes(2, "big", signed=True) + b"\0\1g") is None


def test_consumer_group_record_with_unknown_tags_is_decoded() -> None:
    assert decode_consumer_value(GroupEpochKey("g"), bytes.fromhex("000000000007010902aabb")) == (
        GroupEpoch(7)
    )


def test_consumer_group_record_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="version 1"):
        decode_consumer_value(GroupEpochKey("g"), bytes.fromhex("00010000000700"))


def test_consumer_group_record_that_is_truncated_is_refused() -> None:
    for _, key_bytes, value_bytes in WRITTEN_BY_KAFKA[:40]:
        for size in range(len(key_bytes)):
            with pytest.raises(InvalidRecord):
                decode_consumer_key(key_bytes[:size])
        key = decode_consumer_key(key_bytes)
        assert key is not None
        for size in range(len(value_bytes or b"")):
            assert value_bytes is not None
            with pytest.raises(InvalidRecord):
                decode_consumer_value(key, value_bytes[:size])


texts = st.text(max_size=12)
int8, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (7, 31, 63))
epochs = st.integers(0, 2**31 - 1)
topic_ids = st.binary(min_size=16, max_size=16)
partitions = st.dictionaries(topic_ids, st.frozensets(int32, max_size=5), max_size=3)
with_epochs = st.dictionaries(
    topic_ids, st.dictionaries(int32, epochs, min_size=1, max_size=5), max_size=3
)
strings = st.lists(texts, max_size=3).map(tuple)
classic = st.none() | st.builds(
    ClassicMetadata,
    int32,
    st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
)
VALUES: dict[type[ConsumerKey], st.SearchStrategy[ConsumerValue]] = {
    GroupEpochKey: st.builds(GroupEpoch, int32, int64),
    ConsumerMemberKey: st.builds(
        ConsumerMember, st.none() | texts, st.none() | texts, texts, texts, strings,
        st.none() | texts, int32, st.none() | texts, classic,
    ),
    TargetEpochKey: st.builds(TargetEpoch, int32, int64),
    TargetAssignmentKey: st.builds(TargetAssignment, partitions),
    CurrentAssignmentKey: st.builds(
        CurrentAssignment, int32, int32, int8, with_epochs, with_epochs
    ),
    ResolvedPatternKey: st.builds(ResolvedPattern, strings, int64, int64),
}  # fmt: skip


@given(st.data())
def test_consumer_group_record_is_decoded_as_encoded(data: st.DataObject) -> None:
    key_type = data.draw(st.sampled_from(list(VALUES)))
    key = data.draw(st.builds(key_type, *[texts for _ in fields(key_type)]))
    value = data.draw(VALUES[key_type])
    assert decode_consumer_key(encode_consumer_key(key)) == key
    assert decode_consumer_value(key, encode_consumer_value(key, value)) == value


@given(
    st.sampled_from([3, 4, 5, 6, 7, 8, 16]),
    st.binary(max_size=40),
    st.sampled_from([b"", b"\0\0"]),
    st.binary(max_size=60),
)
def test_consumer_group_record_of_any_bytes_is_decoded_or_refused(
    kind: int, key_bytes: bytes, prefix: bytes, value: bytes
) -> None:
    with suppress(InvalidRecord):
        decode_consumer_key(kind.to_bytes(2, "big") + key_bytes)
    key = decode_consumer_key(kind.to_bytes(2, "big") + b"\0\1g\0\1m")
    assert key is not None
    with suppress(InvalidRecord):
        decode_consumer_value(key, prefix + value)
