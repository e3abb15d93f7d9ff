"""Answers that have only an error, created from the request without a broker.

The error is set for all requested partitions, keys or groups, or once if an API has a single error.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ....wire.error_codes import ErrorCode
from ....wire.framing import encode_response_header
from ....wire.messages import api_keys as keys
from ....wire.messages import control, fetch, produce
from ....wire.messages.fetch_answer import FetchedPartition, FetchedTopic, FetchResponse
from ....wire.messages.produce_answer import ProducedPartition, ProducedTopic, ProduceResponse
from ...cluster.failure import Failure
from .bodies import FETCH, PRODUCE, api_name
from .events import Request

FETCH_SESSIONS_FROM = 7
OF_SESSIONS = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}
OF_COMMITTED_PARTITIONS = {  # OffsetFetch has these errors for a partition, others for the group
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
Values = dict[str, Any]
Make = Callable[[Any, int, ErrorCode], Values]  # of the request's body, version, error


def check_error_can_be_said(api_key: int, error: ErrorCode) -> None:
    """Raise Failure if no answer of this API with this error can be created."""
    if error is ErrorCode.NONE:
        raise Failure("NONE is no error.", exit_code=2)
    if api_key not in _MADE and api_key not in (PRODUCE, FETCH):
        names = sorted(api_name(key) for key in (*_MADE, PRODUCE, FETCH))
        raise Failure(
            f"An answer to {api_name(api_key)} that tells an error cannot be made here. It can be "
            f"made for {', '.join(names)}.",
            exit_code=2,
        )


def error_answer(request: Request, error: ErrorCode) -> bytes:
    """Return the frame of an answer with this error.

    Raises MalformedFrame for a request that cannot be read.
    """
    key, version, body = request.api_key, request.version, request.body
    header = encode_response_header(key, version, request.correlation_id)
    if key == PRODUCE:
        pieces = produce.encode_response(_produced(body, error), version)
        return header + b"".join(pieces)
    if key == FETCH:
        return header + b"".join(fetch.encode_response(_fetched(body, version, error), version))
    return header + control.encode_response(key, version, _MADE[key](body, version, error))


def _produced(body: produce.ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            ProducedTopic(
                topic.name,
                topic.topic_id,
                [ProducedPartition(one.index, int(error)) for one in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _fetched(body: fetch.FetchRequest, version: int, error: ErrorCode) -> FetchResponse:
    """Return an answer to Fetch with the error for each requested partition.

    In a session (KIP-227) a request names only partitions that are new in the session. If the
    request names none, the error is that of the whole answer.
    """
    if version >= FETCH_SESSIONS_FROM and (error in OF_SESSIONS or not body.topics):
        return FetchResponse([], error_code=int(error))
    return FetchResponse(
        [
            FetchedTopic(
                topic.name,
                topic.topic_id,
                [FetchedPartition(one.index, int(error)) for one in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _once(**others: Any) -> Make:
    return lambda body, version, error: {"error_code": error, **(others or {})}


def _partitions(
    topics: Iterable[Any],
    error: ErrorCode,
    others: Values | None = None,
    index: str = "partition_index",
) -> list[Values]:
    """Return the answer's entry for each requested topic, with the error in each partition.

    An entry has all fields by which a version may name the topic. index: the name of the answer's
    field for the partition's number.
    """
    return [
        {
            "name": getattr(topic, "name", None) or getattr(topic, "topic", ""),
            "topic": getattr(topic, "topic", ""),
            "topic_id": getattr(topic, "topic_id", None),
            "partitions": [
                {index: _index_of(one), "error_code": error, **(others or {})}
                for one in _listed(topic)
            ],
        }
        for topic in topics
    ]


def _listed(topic: Any) -> Iterable[Any]:
    return topic.partitions if hasattr(topic, "partitions") else topic.partition_indexes


def _index_of(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    for name in ("partition_index", "partition"):
        if hasattr(partition, name):
            return getattr(partition, name)
    raise AssertionError("a partition without a number")


def _list_offsets(body: Any, version: int, error: ErrorCode) -> Values:
    unknown = {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    return {"topics": _partitions(body.topics, error, unknown)}


def _offset_commit(body: Any, version: int, error: ErrorCode) -> Values:
    return {"topics": _partitions(body.topics, error)}


def _offset_fetch(body: Any, version: int, error: ErrorCode) -> Values:
    unknown = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}

    def told(topics: Any) -> Values:
        if topics and error in OF_COMMITTED_PARTITIONS:
            return {"topics": _partitions(topics, error, unknown)}
        return {"topics": [], "error_code": error}

    if hasattr(body, "groups"):
        groups = [{"group_id": one.group_id, **told(one.topics)} for one in body.groups]
        return {"groups": groups}
    if version < 2:  # it had no error of its own
        return {"topics": _partitions(body.topics or (), error, unknown)}
    return told(body.topics)


def _find_coordinator(body: Any, version: int, error: ErrorCode) -> Values:
    nobody = {"error_code": error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    if hasattr(body, "coordinator_keys"):
        return {"coordinators": [{"key": key, **nobody} for key in body.coordinator_keys]}
    return nobody


def _join_group(body: Any, version: int, error: ErrorCode) -> Values:
    return {
        "error_code": error,
        "generation_id": -1,
        "leader": "",
        "member_id": body.member_id,
        "protocol_name": "",
        "protocol_type": None,
    }


def _add_partitions(body: Any, version: int, error: ErrorCode) -> Values:
    def told(topics: Any) -> list[Values]:
        return [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": one, "partition_error_code": error}
                    for one in topic.partitions
                ],
            }
            for topic in topics
        ]

    if hasattr(body, "transactions"):
        return {
            "results_by_transaction": [
                {"transactional_id": one.transactional_id, "topic_results": told(one.topics)}
                for one in body.transactions
            ]
        }
    return {"results_by_topic_v3_and_below": told(body.v3_and_below_topics)}


def _offset_for_leader_epoch(body: Any, version: int, error: ErrorCode) -> Values:
    unknown = {"leader_epoch": -1, "end_offset": -1}
    return {"topics": _partitions(body.topics, error, unknown, "partition")}


def _named(field: str, requested: str) -> Make:
    """Return a function that creates an answer with the error for each requested topic.

    field: the name of the answer's list of topics. requested: the name of the request's list.
    """

    def make(body: Any, version: int, error: ErrorCode) -> Values:
        topics = getattr(body, requested) if hasattr(body, requested) else body.topic_names
        rows = [
            {"name": topic, "error_code": error}
            if isinstance(topic, str)
            else {
                "name": topic.name,
                "topic_id": getattr(topic, "topic_id", None),
                "error_code": error,
            }
            for topic in topics
        ]
        return {field: rows}

    return make


_MADE: dict[int, Make] = {
    keys.LIST_OFFSETS: _list_offsets,
    keys.OFFSET_COMMIT: _offset_commit,
    keys.OFFSET_FETCH: _offset_fetch,
    keys.FIND_COORDINATOR: _find_coordinator,
    keys.JOIN_GROUP: _join_group,
    keys.HEARTBEAT: _once(),
    keys.LEAVE_GROUP: _once(),
    keys.SYNC_GROUP: _once(protocol_type=None, protocol_name=None),
    keys.CREATE_TOPICS: _named("topics", "topics"),
    keys.DELETE_TOPICS: _named("responses", "topics"),
    keys.CREATE_PARTITIONS: _named("results", "topics"),
    keys.INIT_PRODUCER_ID: _once(
        producer_id=-1, producer_epoch=-1, ongoing_txn_producer_id=-1, ongoing_txn_producer_epoch=-1
    ),
    keys.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    keys.ADD_PARTITIONS_TO_TXN: _add_partitions,
    keys.ADD_OFFSETS_TO_TXN: _once(),
    keys.END_TXN: _once(producer_id=-1, producer_epoch=-1),
    keys.TXN_OFFSET_COMMIT: _offset_commit,
    keys.CONSUMER_GROUP_HEARTBEAT: _once(member_id=None, assignment=None),
}
