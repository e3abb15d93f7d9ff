"""Test error answers of every API and version, in every field that can hold an error."""

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.protocol_proxy.bodies import decode_answer_body
from oncelog.deploy.faults.protocol_proxy.error_answers import (
    check_error_can_be_said,
    error_answer,
)
from oncelog.deploy.faults.protocol_proxy.errors_in_answers import errors_in
from oncelog.wire.error_codes import ErrorCode
from oncelog.wire.messages.apis import APIS
from oncelog.wire.messages.fetch_answer import FetchedPartition, FetchedTopic, FetchResponse

from .frames import KEYS, request_of
from .samples import SAMPLES, fetch_request, sample

NAMES = ["Produce", "Fetch", *SAMPLES]
OF_ALL = [  # one error for the whole
    "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "InitProducerId", "AddOffsetsToTxn",
    "EndTxn", "CreateTopics", "DeleteTopics", "CreatePartitions", "ConsumerGroupHeartbeat",
]  # fmt: skip
VERSIONS = [
    (name, version)
    for name in NAMES
    for version in range(APIS[KEYS[name]].oldest, APIS[KEYS[name]].newest + 1)
]


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_error_answer_has_the_error_code_for_every_partition_or_coordinator_key(name, version):
    check_error_can_be_said(KEYS[name], ErrorCode.NOT_COORDINATOR)
    request = request_of(name, version, sample(name, version), correlation_id=77)
    frame = memoryview(error_answer(request, ErrorCode.NOT_COORDINATOR))
    assert int.from_bytes(frame[:4]) == 77
    told = list(errors_in(decode_answer_body(request.api_key, version, frame)))
    places = 1 if name in OF_ALL else 2  # two partitions, or two keys
    if name == "OffsetFetch":
        places = 2 if version < 2 else 1
    if name == "FindCoordinator":
        places = 2 if version >= 4 else 1
    assert told == [ErrorCode.NOT_COORDINATOR] * places


def test_fetch_answer_with_aborted_transactions_reports_only_its_partition_errors():
    aborted = FetchedPartition(0, aborted_transactions=[(4_000, 17), (4_001, 23)])
    refused = FetchedPartition(1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    answer = FetchResponse([FetchedTopic("orders", None, [aborted, refused])])
    assert list(errors_in(answer)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


@pytest.mark.parametrize("name", ["Produce", "ListOffsets", "OffsetCommit", "TxnOffsetCommit"])
def test_error_answer_has_the_topics_and_partitions_of_its_request(name):
    version = 8 if name == "Produce" else APIS[KEYS[name]].oldest
    request = request_of(name, version, sample(name, version))
    frame = memoryview(error_answer(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    (topic,) = decode_answer_body(request.api_key, version, frame).topics
    indexes = [
        getattr(one, "index", getattr(one, "partition_index", -1)) for one in topic.partitions
    ]
    assert (topic.name, indexes) == ("orders", [0, 2])


def test_error_answer_to_a_request_by_topic_id_has_the_topic_id():
    request = request_of("OffsetCommit", 10, SAMPLES["OffsetCommit"])
    frame = memoryview(error_answer(request, ErrorCode.UNKNOWN_TOPIC_ID))
    (topic,) = decode_answer_body(request.api_key, 10, frame).topics
    assert topic.topic_id == bytes(range(16))


@pytest.mark.parametrize("version", [2, 9])
def test_error_answer_to_offset_fetch_has_unstable_offset_commit_for_each_partition(version):
    request = request_of("OffsetFetch", version, SAMPLES["OffsetFetch"])
    frame = memoryview(error_answer(request, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    body = decode_answer_body(request.api_key, version, frame)
    told = body.groups[0] if version >= 8 else body
    assert told.error_code == 0
    assert [p.error_code for t in told.topics for p in t.partitions] == [88, 88]


@pytest.mark.parametrize(
    ("others", "error"),
    [
        ({"topics": []}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
)
def test_error_answer_to_a_fetch_without_topics_or_with_a_session_error_has_a_top_level_error(
    others, error
):
    values = fetch_request(13)
    if others:
        values.topics = []
    request = request_of("Fetch", 13, values)
    body = decode_answer_body(request.api_key, 13, memoryview(error_answer(request, error)))
    assert (body.error_code, body.topics) == (error, [])


@pytest.mark.parametrize("name", ["Metadata", "ApiVersions", "DescribeCluster"])
def test_error_answer_to_an_api_without_error_codes_is_refused_with_a_clear_message(name):
    with pytest.raises(Failure, match=f"An answer to {name} that tells an error cannot be made"):
        check_error_can_be_said(KEYS[name], ErrorCode.NOT_COORDINATOR)


def test_error_answer_of_code_none_is_refused():
    with pytest.raises(Failure, match="NONE is no error"):
        check_error_can_be_said(KEYS["EndTxn"], ErrorCode.NONE)
