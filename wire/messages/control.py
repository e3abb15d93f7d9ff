"""Every message except Produce and Fetch, with codecs generated from kio's schemas.

Modules of kio are loaded when an API is first used, because all of them together take a second and
40 MB.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ...runtime.steps import Steps
from ..primitives import ELEMENTS_MAX, REQUEST_ELEMENTS_MAX, MalformedFrame, Reader
from .apis import ADDED, APIS
from .schema_decoder import SlicedReader, decoder_of, steps_decoder_of
from .schema_encoder import (
    ShortChunks,
    SlicedChunks,
    TooLargeAtOnce,
    encoder_of,
    steps_encoder_of,
)

if TYPE_CHECKING:
    from .api_keys import ApiKey

Buffer = bytes | bytearray | memoryview
Request = TypeVar("Request")
Response = TypeVar("Response")


@contextmanager
def _without_hypothesis() -> Generator[None, None, None]:
    """Hide Hypothesis while kio is loaded in the block.

    kio imports Hypothesis only for its own tests. The import would take 0.3 s and 15 MB in each
    broker.
    """
    hides = "hypothesis" not in sys.modules
    if hides:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hides:
            sys.modules.pop("hypothesis", None)


@cache
def _schema(api_key: int, version: int, direction: str) -> type:
    api = APIS[api_key]
    with _without_hypothesis():
        if (api_key, version) in ADDED:
            module = import_module(f".added.{api.module}_v{version}_{direction}", __package__)
        else:
            module = import_module(f"kio.schema.{api.module}.v{version}.{direction}")
    return getattr(module, api.name + direction.capitalize())


def response_fields(api_key: int, version: int) -> tuple[str, ...]:
    """Return the names of the top-level fields of a response, in order."""
    return tuple(each.name for each in fields(_schema(api_key, version, "response")))


def _encode(api_key: int, version: int, direction: str, values: Any) -> bytes:
    chunks: list[bytes] = []
    encoder_of(_schema(api_key, version, direction))(values, chunks)
    return b"".join(chunks)


def _decode(api_key: int, version: int, direction: str, body: Buffer) -> Any:
    elements_max = REQUEST_ELEMENTS_MAX if direction == "request" else ELEMENTS_MAX
    reader = Reader(memoryview(body), elements_max=elements_max)
    try:
        message = decoder_of(_schema(api_key, version, direction))(reader)
    except (RecursionError, OverflowError, ValueError) as error:
        raise MalformedFrame(f"not a {APIS[api_key].name} {direction}: {error}") from error
    if direction == "response":
        reader.finish()
    return message


def prepare(api_key: int, version: int) -> None:
    """Create the codecs that a server needs for a version of an API, before the first request."""
    decoder_of(_schema(api_key, version, "request"))
    encoder_of(_schema(api_key, version, "response"))


@overload
def decode_request(api_key: "ApiKey[Request, Any]", version: int, body: Buffer) -> Request: ...
@overload
def decode_request(api_key: int, version: int, body: Buffer) -> Any: ...
def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """Decode a request as a message with the fields of this version, or raise MalformedFrame.

    Bytes after the message are ignored, as in Kafka. For example, librdkafka sends three additional
    bytes when it requests the metadata of all topics.
    """
    return _decode(api_key, version, "request", body)


@overload
def decode_request_steps(
    api_key: "ApiKey[Request, Any]", version: int, body: Buffer
) -> Steps[Request]: ...
@overload
def decode_request_steps(api_key: int, version: int, body: Buffer) -> Steps[Any]: ...
def decode_request_steps(api_key: int, version: int, body: Buffer) -> Steps[Any]:
    """Decode a large request in steps, like `decode_request`."""
    reader = SlicedReader(memoryview(body), REQUEST_ELEMENTS_MAX)
    try:
        return (yield from steps_decoder_of(_schema(api_key, version, "request"))(reader))
    except (RecursionError, OverflowError, ValueError) as error:
        raise MalformedFrame(f"not a {APIS[api_key].name} request: {error}") from error


def encode_short_response(
    api_key: "ApiKey[Any, Response] | int", version: int, values: Response
) -> bytes | None:
    """Encode a response body, or return None if the body has long arrays.

    For a body with long arrays the caller must use `encode_response_steps`.
    """
    chunks = ShortChunks()
    try:
        encoder_of(_schema(api_key, version, "response"))(values, chunks)
    except TooLargeAtOnce:
        return None
    return b"".join(chunks)


def encode_response_steps(
    api_key: "ApiKey[Any, Response] | int", version: int, values: Response
) -> Steps[bytes]:
    """Encode a large response in steps, like `encode_response`."""
    chunks = SlicedChunks()
    yield from steps_encoder_of(_schema(api_key, version, "response"))(values, chunks)
    return chunks.joined()


def encode_response(
    api_key: "ApiKey[Any, Response] | int", version: int, values: Response
) -> bytes:
    """Encode a response body from nested mappings with the field names of the newest version.

    A field that `version` lacks is omitted, and an absent field gets the schema's default.
    """
    return _encode(api_key, version, "response", values)


def encode_request(api_key: int, version: int, values: Any) -> bytes:
    """Encode the body of a request, like `encode_response`."""
    return _encode(api_key, version, "request", values)


def decode_response(api_key: int, version: int, body: Buffer) -> Any:
    """Decode a response as a message, or raise MalformedFrame."""
    return _decode(api_key, version, "response", body)
