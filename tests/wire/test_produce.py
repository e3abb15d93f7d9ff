"""Test the hand-written produce codec against kio and kafka-python in every version."""

import pytest
from kafka.protocol.producer.produce import ProduceRequest as TheirRequest
from kafka.protocol.producer.produce import ProduceResponse as TheirResponse

from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from oncelog.wire.primitives import REQUEST_ELEMENTS_MAX, MalformedFrame, encode_count

from .samples import (
    Samples,
    check_ends,
    check_truncations,
    join,
    names,
    through_kafka_python,
    through_kio,
)

PRODUCE = 0
VERSIONS = range(produce.OLDEST, produce.NEWEST + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)


def some_request(version: int, s: Samples) -> ProduceRequest:
    def topic() -> ProduceTopic:
        partitions = s.some(lambda: ProducePartition(s.int32(), s.nullable_data()))
        return ProduceTopic(*names(version, s), partitions)

    return ProduceRequest(s.nullable_text(), s.int16(), s.int32(), s.some(topic))


def some_response(version: int, s: Samples) -> ProduceResponse:
    def answer() -> ProducedPartition:
        answer = ProducedPartition(s.int32(), s.int16(), s.int64(), s.timestamp())
        if version >= 5:
            answer.log_start_offset = s.int64()
        if version >= 8:
            answer.record_errors = s.some(lambda: (s.int32(), s.nullable_text()))
            answer.error_message = s.nullable_text()
        if version >= 10:
            answer.current_leader = s.maybe(lambda: (s.int32(), 5))
        return answer

    topics = s.some(lambda: ProducedTopic(*names(version, s), s.some(answer)))
    endpoints = s.some(s.endpoint) if version >= 10 else []
    return ProduceResponse(topics, s.int16(), endpoints or ())


@every_version
def test_produce_request_equals_the_requests_of_kio_and_kafka_python(version: int) -> None:
    samples = Samples(version)
    for _ in range(40):
        request = some_request(version, samples)
        data = join(produce.encode_request(request, version))
        assert produce.decode_request(memoryview(data), version) == request
        assert through_kio(PRODUCE, version, "request", data) == data
        assert through_kafka_python(TheirRequest, version, data) == data


@every_version
def test_produce_response_equals_the_responses_of_kio_and_kafka_python(version: int) -> None:
    samples = Samples(100 + version)
    for _ in range(40):
        response = some_response(version, samples)
        data = join(produce.encode_response(response, version))
        assert produce.decode_response(memoryview(data), version) == response
        assert through_kio(PRODUCE, version, "response", data) == data
        assert through_kafka_python(TheirResponse, version, data) == data


@every_version
def test_produce_records_are_encoded_without_a_copy_and_decoded_as_writable_views(
    version: int,
) -> None:
    records = bytes(range(256)) * 64
    topic = ProduceTopic("t", bytes(16), [ProducePartition(0, records)])
    pieces = produce.encode_request(ProduceRequest(None, -1, 1000, [topic]), version)
    assert any(piece is records for piece in pieces)
    frame = bytearray(join(pieces))
    view = produce.decode_request(memoryview(frame), version).topics[0].partitions[0].records
    assert isinstance(view, memoryview)
    view[0] = 99  # a leader stamps in place
    assert frame.count(b"\x63\x01\x02\x03") > records.count(b"\x63\x01\x02\x03")


def test_produce_response_leader_at_its_default_is_left_out() -> None:
    answer = ProducedPartition(0, 6, current_leader=(-1, -1))
    data = join(produce.encode_response(ProduceResponse([ProducedTopic("t", None, [answer])]), 10))
    assert through_kio(PRODUCE, 10, "response", data) == data


def test_produce_decoder_skips_unknown_tags_at_every_level() -> None:
    request = ProduceRequest(None, 1, 1, [ProduceTopic("t", None, [ProducePartition(3, b"rr")])])
    data = join(produce.encode_request(request, 9))
    assert data.endswith(b"rr\0\0\0")
    tag = b"\x01\x2a\x03xyz"
    assert produce.decode_request(memoryview(data[:-3] + tag * 3), 9) == request


@every_version
def test_produce_decoder_refuses_a_null_topic_name_and_null_arrays(version: int) -> None:
    flexible = version >= 9
    opening = (b"\0" if flexible else b"\xff\xff") + bytes(6)
    null_array = encode_count(-1, flexible)
    one = encode_count(1, flexible)
    bodies = [opening + null_array + b"\0" * flexible]
    if version >= 13:
        bodies.append(opening + one + bytes(16) + null_array + b"\0\0")
    else:
        name = b"\x02t" if flexible else b"\0\1t"
        bodies.append(opening + one + name + null_array + b"\0\0" * flexible)
        null_name = b"\0" if flexible else b"\xff\xff"
        bodies.append(opening + one + null_name + encode_count(0, flexible) + b"\0\0" * flexible)
    for body in bodies:
        with pytest.raises(MalformedFrame):
            produce.decode_request(memoryview(body), version)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_produce_request_with_too_many_partitions_is_refused(version: int) -> None:
    partitions = [ProducePartition(0, b"")] * REQUEST_ELEMENTS_MAX
    topic = ProduceTopic("t", bytes(16), partitions)
    body = join(produce.encode_request(ProduceRequest(None, 1, 1, [topic]), version))
    with pytest.raises(MalformedFrame):
        produce.decode_request(memoryview(body), version)


@every_version
def test_produce_decoder_ignores_bytes_after_a_request_and_refuses_bytes_after_a_response(
    version: int,
) -> None:
    check_ends(produce, ProduceRequest(None, -1, 1, []), ProduceResponse([]), version)


@every_version
def test_produce_decoder_refuses_every_truncated_message(version: int) -> None:
    check_truncations(produce, version, request=some_request, response=some_response)
