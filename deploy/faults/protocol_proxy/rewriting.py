"""The proxy's changes of answers, of brokers' addresses, and of versions it cannot decode.

    answer                              where a broker's address is
    Metadata, DescribeCluster           brokers
    FindCoordinator                     the coordinator, from version 4 on one for each key
    Produce v10, Fetch v16 and later    the new leaders, beside the error (KIP-951)
    ShareFetch, ShareAcknowledge        the same

ApiVersions is limited to versions with a schema here, so that every address can be found. Other
answers are forwarded unchanged.
"""

from collections.abc import Callable
from typing import Any

from ....wire.error_codes import ErrorCode
from ....wire.framing import encode_response_header
from ....wire.messages import control, fetch_answer
from ....wire.messages.api_keys import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    FIND_COORDINATOR,
    METADATA,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)
from ....wire.messages.apis import APIS
from .bodies import FETCH, PRODUCE, answer_body_offset, answer_version
from .events import Answer, Request

# proxied(node id, host, port): the address that a client gets instead.
Proxied = Callable[[int, str, int], tuple[str, int]]
PRODUCE_ENDPOINTS_FROM = 10
# an endpoint type of DescribeCluster; clients do not request controllers through the proxy
CONTROLLERS = 2


def rewritten_answer(answer: Answer, frame: memoryview, proxied: Proxied) -> bytes | memoryview:
    """Return an answer's frame with the proxy's addresses, or `frame` itself if it has no address.

    `proxied` returns the proxy's address for a broker. Raises MalformedFrame when an answer that
    may contain addresses cannot be decoded.
    """
    key, version = answer.request.api_key, answer.request.version
    change = _CHANGES.get(key)
    if change is None or (key in _HINTS_FROM and not _has_hints(answer)):
        return frame
    version = answer_version(key, version, frame)
    offset = answer_body_offset(key, version, frame)
    # correlation ids of our own requests are separate
    body = control.decode_response(key, version, frame[offset:])
    change(body, proxied)
    return bytes(frame[:offset]) + control.encode_response(key, version, body)


def refused_api_versions(request: Request) -> bytes | None:
    """Return the answer to an ApiVersions request of an unknown version, else None.

    The answer has version 0 and the known versions, as from brokers (KIP-511).
    """
    api = APIS[API_VERSIONS]
    if request.api_key != API_VERSIONS or request.version <= api.newest:
        return None
    row = {"api_key": API_VERSIONS, "min_version": api.oldest, "max_version": api.newest}
    body: Any = {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [row]}
    header = encode_response_header(API_VERSIONS, 0, request.correlation_id)
    return header + control.encode_response(API_VERSIONS, 0, body)


def _has_hints(answer: Answer) -> bool:
    oldest = _HINTS_FROM[answer.request.api_key]
    return answer.request.version >= oldest and bool(answer.body.node_endpoints)


def _replace(address: Any, node_id: int, proxied: Proxied) -> None:
    if node_id >= 0 and address.host:  # an error has none
        address.host, address.port = proxied(node_id, address.host, address.port)


def _brokers(body: Any, proxied: Proxied) -> None:
    if getattr(body, "endpoint_type", None) == CONTROLLERS:
        return
    for broker in body.brokers:
        node_id = broker.broker_id if hasattr(broker, "broker_id") else broker.node_id
        _replace(broker, node_id, proxied)


def _coordinators(body: Any, proxied: Proxied) -> None:
    for found in body.coordinators if hasattr(body, "coordinators") else [body]:
        _replace(found, found.node_id, proxied)


def _hints(body: Any, proxied: Proxied) -> None:
    for endpoint in body.node_endpoints:
        _replace(endpoint, endpoint.node_id, proxied)


def _versions(body: Any, _: Proxied) -> None:
    kept: list[Any] = []
    for row in body.api_keys:
        if (api := APIS.get(row.api_key)) is not None:
            # Versions older than the known ones contain no addresses, and old librdkafka needs
            # them.
            row.max_version = min(row.max_version, api.newest)
            if row.min_version <= row.max_version:
                kept.append(row)
    body.api_keys = kept


_HINTS_FROM: dict[int, int] = {
    PRODUCE: PRODUCE_ENDPOINTS_FROM,
    FETCH: fetch_answer.ENDPOINTS_FROM,
    SHARE_FETCH: 0,
    SHARE_ACKNOWLEDGE: 0,
}
_CHANGES: dict[int, Callable[[Any, Proxied], None]] = {
    METADATA: _brokers,
    DESCRIBE_CLUSTER: _brokers,
    FIND_COORDINATOR: _coordinators,
    API_VERSIONS: _versions,
    **dict.fromkeys(_HINTS_FROM, _hints),
}
