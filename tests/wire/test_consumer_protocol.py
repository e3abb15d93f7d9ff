"""Test the encoding of subscriptions and assignments, which classic group members exchange."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.groups.descriptions import assigned_partitions
from oncelog.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_sticky,
    decode_subscription,
    decode_whole_assignment,
    encode_assignment,
    encode_sticky,
    encode_subscription,
)
from oncelog.wire.primitives import MalformedFrame

names = st.text("abc.-_", min_size=1, max_size=8)
places = st.sets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=6).map(
    lambda found: tuple(sorted(found))
)


@given(st.sets(names, max_size=4), places, st.integers(-1, 99), st.binary(max_size=9))
def test_encoded_subscription_decodes_to_the_same_subscription(
    topics, owned, generation, user_data
):
    subscription = Subscription(tuple(sorted(topics)), owned, generation, user_data)
    assert decode_subscription(encode_subscription(subscription)) == subscription


@given(places)
def test_encoded_assignment_decodes_to_the_same_assignment(partitions):
    data = encode_assignment(partitions)
    assert decode_assignment(data) == partitions == assigned_partitions(data)


@given(places, st.integers(-1, 99))
def test_encoded_sticky_user_data_decodes_to_the_same_data(owned, generation):
    assert decode_sticky(encode_sticky(owned, generation)) == (owned, generation)
    assert decode_sticky(b"\0\0") == ((), -1)


def test_subscription_of_an_older_or_newer_version_is_decoded():
    topics = b"\0\0\0\1\0\1t"
    nothing = b"\xff\xff\xff\xff"
    assert decode_subscription(b"\0\0" + topics + nothing) == Subscription(("t",))
    owned = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5"
    version_1 = decode_subscription(b"\0\1" + topics + nothing + owned)
    assert version_1 == Subscription(("t",), (("t", 5),))
    version_9 = decode_subscription(
        b"\0\x09" + topics + nothing + owned + b"\0\0\0\7" + b"\0\1r" + b"more"
    )
    assert version_9 == Subscription(("t",), (("t", 5),), 7, rack_id="r")
    assert decode_assignment(b"") == ()


def test_subscription_and_assignment_are_decoded_by_aiokafka():
    from aiokafka.coordinator.protocol import (
        ConsumerProtocolMemberAssignment,
        ConsumerProtocolMemberMetadata,
    )

    subscription = encode_subscription(Subscription(("t", "u"), (("t", 1),), 3, b"x"))
    assert list(ConsumerProtocolMemberMetadata.decode(subscription).subscription) == ["t", "u"]
    given_ = ConsumerProtocolMemberAssignment.decode(encode_assignment([("t", 1), ("t", 2)]))
    assert [(t, list(ps)) for t, ps in given_.assignment] == [("t", [1, 2])]


def test_assignment_user_data_is_returned_only_if_present():
    plain, partitions = encode_assignment([("t", 1)]), (("t", 1),)
    assert decode_whole_assignment(b"") == ((), b"")
    for none in (plain, plain[:-4], plain[:-4] + b"\xff\xff\xff\xff"):
        assert decode_whole_assignment(none) == (partitions, b"")
    assert decode_whole_assignment(plain[:-4] + b"\0\0\0\1x") == (partitions, b"x")


@given(st.binary(max_size=40))
def test_subscription_or_assignment_of_random_bytes_is_decoded_or_refused(data):
    for decode in (decode_subscription, decode_whole_assignment):
        with contextlib.suppress(MalformedFrame):
            decode(data)
