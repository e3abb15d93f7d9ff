"""Decoding of requests and answers, with this project's codecs for Produce and Fetch, else kio's.

The records of Produce and Fetch are views of the frame, not decoded.
"""

from typing import Any

from ....wire.messages import control, fetch, produce
from ....wire.messages.apis import APIS, is_flexible
from ....wire.primitives import MalformedFrame, Reader

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
CORRELATION_ID_BYTES = 4
UNSUPPORTED_VERSION = 35
TRANSACTIONAL_IDS_FROM = 3  # of Produce
_SELF_CODED = {PRODUCE: produce, FETCH: fetch}


def is_known(api_key: int, version: int) -> bool:
    """Return whether there is a schema for this version of an API."""
    api = APIS.get(api_key)
    return api is not None and api.oldest <= version <= api.newest


def api_name(api_key: int) -> str:
    """Return the name of an API, such as `EndTxn`, or `Api99` for an API unknown to Kafka 4.4."""
    api = APIS.get(api_key)
    return f"Api{api_key}" if api is None else api.name


def decode_request_body(api_key: int, version: int, frame: memoryview, offset: int) -> Any:
    """Decode a request from a frame with a header that ends at `offset`. Raises MalformedFrame."""
    _check(api_key, version)
    if api_key in _SELF_CODED:
        return _SELF_CODED[api_key].decode_request(frame[offset:], version)
    return control.decode_request(api_key, version, frame[offset:])


def expects_answer(api_key: int, version: int, frame: memoryview, offset: int) -> bool:
    """Return whether a broker answers the request, or raise MalformedFrame.

    A broker does not answer a Produce with acks=0.
    """
    if api_key != PRODUCE:
        return True
    reader = Reader(frame, offset)
    if version >= TRANSACTIONAL_IDS_FROM:
        reader.nullable_string(is_flexible(api_key, version))
    return reader.int16() != 0


def decode_answer_body(api_key: int, version: int, frame: memoryview) -> Any:
    """Decode an answer from its frame, or raise MalformedFrame."""
    version = answer_version(api_key, version, frame)
    _check(api_key, version)
    body = frame[answer_body_offset(api_key, version, frame) :]
    if api_key in _SELF_CODED:
        return _SELF_CODED[api_key].decode_response(body, version)
    return control.decode_response(api_key, version, body)


def answer_version(api_key: int, version: int, frame: memoryview) -> int:
    """Return the version of an answer.

    ApiVersions refuses an unknown version in version 0 (KIP-511).
    """
    if api_key == API_VERSIONS and int.from_bytes(frame[4:6]) == UNSUPPORTED_VERSION:
        return 0
    return version


def answer_body_offset(api_key: int, version: int, frame: memoryview) -> int:
    """Return the offset of the body in an answer's frame, which is the length of the header.

    Flexible versions have the header version 1, with tags. ApiVersions always has version 0.
    """
    if api_key == API_VERSIONS or not is_flexible(api_key, version):
        return CORRELATION_ID_BYTES
    reader = Reader(frame, CORRELATION_ID_BYTES)
    reader.tags()
    return reader.position


def _check(api_key: int, version: int) -> None:
    if not is_known(api_key, version):
        raise MalformedFrame(f"version {version} of {api_name(api_key)} is not known here")
