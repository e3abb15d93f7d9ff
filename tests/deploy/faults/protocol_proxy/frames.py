"""Frames of requests and answers, made by the schemas."""

from typing import Any

from oncelog.deploy.faults.protocol_proxy.events import Answer, Connection, Request
from oncelog.deploy.faults.protocol_proxy.subjects import TopicNames
from oncelog.wire.framing import (
    decode_request_header,
    encode_request_header,
    encode_response_header,
)
from oncelog.wire.messages import control, fetch, produce
from oncelog.wire.messages.apis import APIS

KEYS = {api.name: key for key, api in APIS.items()}
TOPIC_ID = bytes(range(16))
CONNECTION = Connection(1, "one", 7, 50_000)
CODECS: dict[str, Any] = {"Produce": produce, "Fetch": fetch}


def request_frame(
    api: str, version: int, values: Any, correlation_id: int = 1, client_id: str = "c"
) -> bytes:
    key = KEYS[api]
    header = encode_request_header(key, version, correlation_id, client_id)
    if api in CODECS:
        return header + b"".join(CODECS[api].encode_request(values, version))
    return header + control.encode_request(key, version, values)


def answer_frame(api: str, version: int, values: Any, correlation_id: int = 1) -> bytes:
    key = KEYS[api]
    header = encode_response_header(key, version, correlation_id)
    if api in CODECS:
        return header + b"".join(
            bytes(piece) for piece in _pieces(CODECS[api].encode_response(values, version))
        )
    return header + control.encode_response(key, version, values)


def _pieces(encoded: Any) -> list[Any]:
    return [encoded] if isinstance(encoded, bytes) else encoded


def request_of(
    api: str, version: int, values: Any, names: TopicNames | None = None, **header: Any
) -> Request:
    frame = memoryview(request_frame(api, version, values, **header))
    return request_from(frame, names)


def request_from(frame: memoryview, names: TopicNames | None = None) -> Request:
    return Request(CONNECTION, decode_request_header(frame), frame, 0.0, names or TopicNames())


def answer_of(request: Request, values: Any) -> tuple[Answer, memoryview]:
    frame = memoryview(answer_frame(request.api, request.version, values, request.correlation_id))
    return Answer(request, frame, 0.0, True, "delivered"), frame
