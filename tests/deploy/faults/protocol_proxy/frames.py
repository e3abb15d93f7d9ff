"""Frames of requests and answers, encoded with kio's schemas."""

from typing import Any

from oncelog.deploy.faults.protocol_proxy.events import Answer, Connection, Request
from oncelog.deploy.faults.protocol_proxy.subjects import TopicNames
from oncelog.wire.framing import (
    decode_request_header,
    encode_request_header,
    encode_response_header,
)
from oncelog.wire.messages import control
from oncelog.wire.messages.apis import APIS

from ....request_bodies import CODECS, encode_request_body

KEYS = {api.name: key for key, api in APIS.items()}
TOPIC_ID = bytes(range(16))
CONNECTION = Connection(1, "one", 7, 50_000)


def request_frame(
    api: str, version: int, values: Any, correlation_id: int = 1, client_id: str = "c"
) -> bytes:
    key = KEYS[api]
    header = encode_request_header(key, version, correlation_id, client_id)
    return header + encode_request_body(key, version, values)


def answer_frame(api: str, version: int, values: Any, correlation_id: int = 1) -> bytes:
    key = KEYS[api]
    header = encode_response_header(key, version, correlation_id)
    if key in CODECS:
        encoded = CODECS[key].encode_response(values, version)
        return header + b"".join([encoded] if isinstance(encoded, bytes) else encoded)
    return header + control.encode_response(key, version, values)


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
