"""Test the generic codec, which has kio's bytes for each API except Produce and Fetch."""

from itertools import pairwise

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import control
from oncelog.wire.messages.apis import APIS, is_flexible
from oncelog.wire.messages.control import _schema
from oncelog.wire.messages.schema_encoder import Each
from oncelog.wire.primitives import MalformedFrame

from .field_names import check_names
from .samples import Samples, sample_body, through_kio

METADATA, API_VERSIONS, CREATE_TOPICS, END_TXN = 3, 18, 19, 26
OFFSET_FETCH, LIST_OFFSETS, DELETE_TOPICS = 9, 2, 20
EVERY = [
    pytest.param(key, version, id=f"{api.name} v{version}")
    for key, api in APIS.items()
    if key > 1
    for version in range(api.oldest, api.newest + 1)
]


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_generic_codec_message_equals_that_of_kio(api_key: int, version: int) -> None:
    samples = Samples(api_key * 100 + version)
    for direction in ("request", "response"):
        decode = getattr(control, f"decode_{direction}")
        encode = getattr(control, f"encode_{direction}")
        for _ in range(6):
            data = sample_body(api_key, version, direction, samples)
            assert through_kio(api_key, version, direction, data) == data
            assert encode(api_key, version, decode(api_key, version, memoryview(data))) == data


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_generic_codec_decodes_requests_and_encodes_responses_in_steps_as_at_once(
    api_key: int, version: int
) -> None:
    samples = Samples(api_key * 100 + version)
    for _ in range(6):
        data = memoryview(sample_body(api_key, version, "request", samples))
        in_steps = run_to_end(control.decode_request_steps(api_key, version, data))
        assert in_steps == control.decode_request(api_key, version, data)
        data = memoryview(sample_body(api_key, version, "response", samples))
        message = control.decode_response(api_key, version, data)
        assert run_to_end(control.encode_response_steps(api_key, version, message)) == data
        assert control.encode_short_response(api_key, version, message) in (data, None)


@pytest.mark.parametrize("nested", [1, 30])
def test_generic_codec_long_message_takes_many_steps_whatever_its_nesting(nested: int) -> None:
    partitions = [{"partition_index": i, "timestamp": -1, "offset": i} for i in range(nested)]
    values = {"topics": [{"name": "t", "partitions": partitions}] * (3_000 // nested)}
    assert sum(1 for _ in control.encode_response_steps(LIST_OFFSETS, 7, values)) >= 90
    request = memoryview(control.encode_request(LIST_OFFSETS, 7, values))
    assert sum(1 for _ in control.decode_request_steps(LIST_OFFSETS, 7, request)) >= 60
    names = control.encode_request(DELETE_TOPICS, 5, {"topic_names": ["t"] * 3_000})
    assert sum(1 for _ in control.decode_request_steps(DELETE_TOPICS, 5, memoryview(names))) >= 60


def test_generic_codec_creates_array_items_lazily_while_encoding() -> None:
    made = []

    def make(index: int) -> dict[str, int]:
        made.append(index)
        return {"partition_index": index, "offset": 7}

    values = {"topics": [{"name": "t", "partitions": Each(make, range(1_000))}]}
    assert control.encode_short_response(LIST_OFFSETS, 7, values) is None
    assert not made
    counts = [len(made) for _ in control.encode_response_steps(LIST_OFFSETS, 7, values)]
    assert max(after - before for before, after in pairwise([0, *counts])) <= 32
    encoded = run_to_end(control.encode_response_steps(LIST_OFFSETS, 7, values))
    assert encoded == control.encode_response(LIST_OFFSETS, 7, values)
    (topic,) = control.decode_response(LIST_OFFSETS, 7, encoded).topics
    assert [each.partition_index for each in topic.partitions] == list(range(1_000))


def test_generic_codec_long_message_is_encoded_and_decoded_in_many_steps() -> None:
    partitions = [{"partition_index": i, "timestamp": -1, "offset": i} for i in range(5_000)]
    values = {"topics": [{"name": "t", "partitions": partitions}]}
    assert control.encode_short_response(LIST_OFFSETS, 7, values) is None
    assert sum(1 for _ in control.encode_response_steps(LIST_OFFSETS, 7, values)) >= 50
    many_topics = {"topics": [{"name": "t", "partitions": partitions[:90]}] * 90}
    assert control.encode_short_response(LIST_OFFSETS, 7, many_topics) is None
    few = {"topics": [{"name": "t", "partitions": partitions[:50]}]}
    expected = control.encode_response(LIST_OFFSETS, 7, few)
    assert control.encode_short_response(LIST_OFFSETS, 7, few) == expected
    request = control.encode_request(LIST_OFFSETS, 7, values)
    steps = control.decode_request_steps(LIST_OFFSETS, 7, memoryview(request))
    assert sum(1 for _ in steps) >= 100


@pytest.mark.parametrize("api_key", [METADATA, LIST_OFFSETS, OFFSET_FETCH])
def test_generic_codec_that_decodes_in_steps_refuses_malformed_bytes(api_key: int) -> None:
    data = memoryview(b"\x00\xff\xff\xff\xff\x0f" * 20)
    with pytest.raises(MalformedFrame):
        run_to_end(control.decode_request_steps(api_key, APIS[api_key].newest, data))


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_flexible_versions_of_each_api_equal_those_of_kio(api_key: int, version: int) -> None:
    flexible = _schema(api_key, version, "request").__flexible__
    assert is_flexible(api_key, version) == flexible


def test_unknown_api_has_no_flexible_version() -> None:
    assert not is_flexible(999, 1)


def test_generic_codec_gives_absent_fields_the_schema_default() -> None:
    body = control.encode_request(METADATA, 12, {"topics": None})
    request = control.decode_request(METADATA, 12, memoryview(body))
    assert request.topics is None
    assert request.allow_auto_topic_creation is True
    assert request.include_topic_authorized_operations is False


def test_generic_codec_leaves_out_fields_missing_in_an_older_version() -> None:
    partition = {"partition_index": 1, "leader_id": 2, "leader_epoch": 7, "replica_nodes": [1, 2]}
    topic = {"name": "t", "topic_id": b"i" * 16, "partitions": [partition]}
    values = {"cluster_id": "c", "controller_id": 1, "topics": [topic]}
    old = control.decode_response(METADATA, 0, control.encode_response(METADATA, 0, values))
    assert old.topics[0].partitions[0].replica_nodes == [1, 2]
    assert not hasattr(old, "cluster_id")
    assert not hasattr(old.topics[0], "topic_id")
    new = control.decode_response(METADATA, 12, control.encode_response(METADATA, 12, values))
    assert new.topics[0].topic_id == b"i" * 16
    assert new.topics[0].partitions[0].leader_epoch == 7


def test_generic_codec_values_are_plain_integers_and_bytes() -> None:
    answer = {"throttle_time": 250, "error_code": ErrorCode.NOT_COORDINATOR}
    body = control.encode_response(END_TXN, 4, answer)
    decoded = control.decode_response(END_TXN, 4, body)
    assert (decoded.throttle_time, decoded.error_code) == (250, 16)
    assert body == bytes.fromhex("000000fa 0010 00")
    partition = {"partition_index": 0, "timestamp": 1_700_000_000_123, "offset": 5}
    body = control.encode_response(
        LIST_OFFSETS, 7, {"topics": [{"name": "t", "partitions": [partition]}]}
    )
    decoded = control.decode_response(LIST_OFFSETS, 7, body).topics[0].partitions[0]
    assert decoded.timestamp == 1_700_000_000_123


def test_generic_codec_field_name_check_reports_a_name_in_no_version() -> None:
    check_names(METADATA, "response", {"topics": [{"partitions": [{"leader_id": 1}]}]})
    for wrong in ({"topic": []}, {"topics": [{"partitions": [{"leader": 1}]}]}):
        with pytest.raises(TypeError):
            check_names(METADATA, "response", wrong)


def test_generic_codec_null_in_a_non_nullable_field_or_a_short_uuid_raises() -> None:
    for values in ({"name": None}, {"name": "t", "assignments": None}):
        with pytest.raises(TypeError):
            control.encode_request(CREATE_TOPICS, 7, {"topics": [values]})
    with pytest.raises(TypeError):
        control.encode_response(METADATA, 12, {"topics": [{"topic_id": b"short"}]})


@pytest.mark.parametrize("version", [0, 12])
def test_generic_codec_ignores_bytes_after_a_request_and_refuses_bytes_after_a_response(
    version: int,
) -> None:
    body = control.encode_request(METADATA, version, {"topics": []})
    assert control.decode_request(METADATA, version, body + b"\0\0\0").topics == []
    body = control.encode_response(METADATA, version, {})
    control.decode_response(METADATA, version, body)
    with pytest.raises(MalformedFrame):
        control.decode_response(METADATA, version, body + b"\0")


def test_generic_codec_skips_unknown_tags() -> None:
    body = control.encode_request(METADATA, 12, {"topics": [{"name": "t"}]})
    assert body.endswith(b"\0")
    decoded = control.decode_request(METADATA, 12, memoryview(body[:-1] + b"\x01\x63\x02xx"))
    assert decoded.topics[0].name == "t"


def test_generic_codec_writes_tagged_fields_only_if_not_default() -> None:
    feature = {"name": "transaction.version", "min_version": 0, "max_version": 2}
    plain = control.encode_response(API_VERSIONS, 4, {})
    full = control.encode_response(
        API_VERSIONS, 4, {"supported_features": [feature], "finalized_features_epoch": 9}
    )
    assert len(plain) < 15
    decoded = control.decode_response(API_VERSIONS, 4, full)
    assert decoded.supported_features[0].max_version == 2
    assert decoded.finalized_features_epoch == 9
    assert control.decode_response(API_VERSIONS, 4, plain).finalized_features_epoch == -1
    default = control.encode_response(API_VERSIONS, 4, {"finalized_features_epoch": -1})
    assert default == plain


def test_generic_codec_prepare_of_an_api_raises_no_error() -> None:
    control.prepare(OFFSET_FETCH, 9)


def test_generic_codec_messages_with_equal_fields_are_equal_and_printable() -> None:
    body = control.encode_request(METADATA, 12, {"topics": [{"name": "t"}]})
    one, two = (control.decode_request(METADATA, 12, body) for _ in range(2))
    assert one == two
    two.topics[0].name = "u"
    assert one != two
    assert "name='u'" in repr(two)
