"""Test the hand-written fetch codec against kio and kafka-python in every version."""

from dataclasses import replace
from typing import Any

import pytest
from kafka.protocol.consumer.fetch import FetchRequest as TheirRequest
from kafka.protocol.consumer.fetch import FetchResponse as TheirResponse

from oncelog.runtime.steps import run_to_end
from oncelog.wire.messages import control, fetch
from oncelog.wire.messages.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from oncelog.wire.primitives import MalformedFrame

from .samples import (
    Samples,
    check_ends,
    check_truncations,
    join,
    names,
    through_kafka_python,
    through_kio,
)

FETCH = 1
every_version = pytest.mark.parametrize("version", range(fetch.OLDEST, fetch.NEWEST + 1))


def some_request(version: int, s: Samples) -> FetchRequest:
    def partition() -> FetchPartition:
        partition = FetchPartition(s.int32(), s.int64(), s.int32())
        if version >= 5:
            partition.log_start_offset = s.int64()
        if version >= 9:
            partition.current_leader_epoch = s.int32()
        if version >= 12:
            partition.last_fetched_epoch = s.int32()
        return partition

    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=s.int32(),
        topics=s.some(lambda: FetchTopic(*names(version, s), s.some(partition))),
        max_bytes=s.int32(),
        isolation_level=s.random.choice([0, 1]),
        replica_id=s.random.choice([-1, 3]),
    )
    if version >= 7:
        request.session_id, request.session_epoch = s.int32(), s.int32()
        request.forgotten_topics = s.some(
            lambda: ForgottenTopic(*names(version, s), s.some(s.int32))
        )
    if version >= 11:
        request.rack_id = s.text()
    return request


def some_response(version: int, s: Samples) -> FetchResponse:
    def answer() -> FetchedPartition:
        answer = FetchedPartition(s.int32(), s.int16(), s.int64(), s.int64(), records=s.data())
        answer.aborted_transactions = s.maybe(lambda: s.some(lambda: (s.int64(), s.int64())))
        if version >= 5:
            answer.log_start_offset = s.int64()
        if version >= 11:
            answer.preferred_read_replica = s.int32()
        if version >= 12:
            answer.diverging_epoch = s.maybe(lambda: (5, s.int64()))
            answer.current_leader = s.maybe(lambda: (s.int32(), 5))
        return answer

    response = FetchResponse(s.some(lambda: FetchedTopic(*names(version, s), s.some(answer))), 7)
    if version >= 7:
        response.error_code, response.session_id = s.int16(), s.int32()
    if version >= 16:
        response.node_endpoints = s.some(s.endpoint) or ()
    return response


def each_once(request: FetchRequest) -> FetchRequest:
    """Return the request with each partition once, as Kafka reads a request with repetitions.

    A partition has the place of its first entry, and the fields of its last entry.
    """
    wanted: dict[Any, dict[int, FetchPartition]] = {}
    for topic in request.topics:
        of_topic = wanted.setdefault((topic.name, topic.topic_id), {})
        for partition in topic.partitions:
            of_topic[partition.index] = partition
    topics = [FetchTopic(name, id_, list(rows.values())) for (name, id_), rows in wanted.items()]
    return replace(request, topics=topics)


@every_version
def test_fetch_request_equals_the_requests_of_kio_and_kafka_python(version: int) -> None:
    samples = Samples(version)
    for _ in range(40):
        request = some_request(version, samples)
        data = join(fetch.encode_request(request, version))
        assert fetch.decode_request(memoryview(data), version) == each_once(request)
        assert through_kio(FETCH, version, "request", data) == data
        assert through_kafka_python(TheirRequest, version, data) == data


@every_version
def test_fetch_response_equals_the_responses_of_kio_and_kafka_python(version: int) -> None:
    samples = Samples(100 + version)
    for _ in range(40):
        response = some_response(version, samples)
        data = join(fetch.encode_response(response, version))
        assert fetch.decode_response(memoryview(data), version) == response
        assert through_kio(FETCH, version, "response", data) == data
        assert through_kafka_python(TheirResponse, version, data) == data


@every_version
def test_fetch_records_are_encoded_without_a_copy_and_decoded_as_views(version: int) -> None:
    records = memoryview(bytes(range(256)) * 64)
    topic = FetchedTopic("t", bytes(16), [FetchedPartition(p, records=records) for p in (0, 1)])
    pieces = fetch.encode_response(FetchResponse([topic]), version)
    assert sum(piece is records for piece in pieces) == 2
    assert sum(len(piece) for piece in pieces if piece is not records) < 300
    decoded = fetch.decode_response(memoryview(join(pieces)), version)
    assert isinstance(decoded.topics[0].partitions[1].records, memoryview)


@every_version
def test_fetch_response_without_records_has_empty_and_not_null_records(version: int) -> None:
    topic = FetchedTopic("t", bytes(16), [FetchedPartition(0)])
    data = join(fetch.encode_response(FetchResponse([topic]), version))
    partition = control.decode_response(FETCH, version, data).responses[0].partitions[0]
    assert partition.records == b""


def test_fetch_request_partition_tags_are_skipped_at_any_position() -> None:
    """From version 17 on, a follower of Apache Kafka sends its directory id in a tag (KIP-853)."""
    tag = b"\x01\x00\x10" + bytes(16)
    for tagged in ([0], [1], [2], [0, 2], [0, 1, 2]):
        partitions = [FetchPartition(p, 10 + p, 20, 1, 2, 3) for p in range(3)]
        request = FetchRequest(1, 1, [FetchTopic(None, bytes(16), partitions)], replica_id=4)
        data = join(fetch.encode_request(request, 17))
        for index in sorted(tagged, reverse=True):
            end = 4 + 4 + 4 + 1 + 8 + 1 + 16 + 1 + 33 * (index + 1)  # the partition's tag count
            assert data[end - 1] == 0
            data = data[: end - 1] + tag + data[end:]
        assert fetch.decode_request(memoryview(data), 17) == request


def test_fetch_request_has_its_replica_id_in_a_tag_from_version_15_on() -> None:
    request = FetchRequest(1, 1, [], replica_id=7)
    for version in (14, 15, 18):
        data = join(fetch.encode_request(request, version))
        assert fetch.decode_request(memoryview(data), version).replica_id == 7


def test_fetch_response_tagged_fields_at_their_default_are_left_out() -> None:
    answer = FetchedPartition(0, 6, current_leader=(-1, -1), diverging_epoch=(-1, -1))
    topic = FetchedTopic("t", None, [answer])
    data = join(fetch.encode_response(FetchResponse([topic]), 12))
    assert through_kio(FETCH, 12, "response", data) == data


def test_fetch_request_with_too_many_partitions_is_refused() -> None:
    partitions = [FetchPartition(0, 0, 0)] * 100_000
    topics = [FetchTopic("t", bytes(16), partitions)]
    for version in (4, 11, 12, 18):
        body = join(fetch.encode_request(FetchRequest(1, 1, topics), version))
        with pytest.raises(MalformedFrame):
            fetch.decode_request(memoryview(body), version)


@every_version
def test_fetch_decoder_ignores_bytes_after_a_request_and_refuses_bytes_after_a_response(
    version: int,
) -> None:
    check_ends(fetch, FetchRequest(1, 1, []), FetchResponse([]), version)


@every_version
def test_fetch_decoder_refuses_every_truncated_message(version: int) -> None:
    check_truncations(fetch, version, request=some_request, response=some_response)


@pytest.mark.parametrize("version", [4, 9, 12, 13, 18])
def test_fetch_codec_decodes_requests_and_encodes_responses_in_steps_as_at_once(
    version: int,
) -> None:
    by_id = version >= 13
    topics = [
        fetch.FetchTopic(
            None if by_id else f"t{number}",
            bytes([number]) * 16 if by_id else None,
            [fetch.FetchPartition(index, 5, 100) for index in range(number * 70)],
        )
        for number in (1, 2, 3)
    ]
    topics.append(topics[0])  # a repeated partition is fetched once
    request = fetch.FetchRequest(500, 1, topics, replica_id=7 if version >= 15 else -1)
    if version >= 7:
        request.session_id, request.session_epoch = 4, 5
        request.forgotten_topics = [
            fetch.ForgottenTopic(topic.name, topic.topic_id, [1, 7]) for topic in topics[:2]
        ]
    body = memoryview(b"".join(fetch.encode_request(request, version)))
    steps = fetch.decode_request_steps(body, version)
    assert run_to_end(steps) == fetch.decode_request(body, version)
    answer = fetch.FetchResponse(
        [
            fetch.FetchedTopic(
                topic.name,
                topic.topic_id,
                [
                    fetch.FetchedPartition(p.index, records=b"r" * (p.index % 3))
                    for p in topic.partitions
                ],
            )
            for topic in topics
        ],
        node_endpoints=[(1, "h", 9092, None)],
    )
    sliced = run_to_end(fetch.encode_response_steps(answer, version))
    assert b"".join(sliced) == b"".join(fetch.encode_response(answer, version))
