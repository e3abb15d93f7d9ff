"""Converts a record to text, for a column of any database. The file does no I/O."""

import base64
import json
from operator import index
from typing import Any

from ...wire.batch_builder import Headers
from ...wire.errors import InvalidPartitions
from ...wire.record_rows import as_bytes, checked_time, encode_headers


def to_text(
    value: bytes | None,
    key: bytes | None,
    partition: int | None,
    timestamp_ms: int | None,
    headers: Headers,
) -> str:
    """Return a record as text.

    Raises the errors of `Producer.send` for a record that no producer can send. The record would
    stop the relay if it became a row.
    """
    if partition is not None and (partition := index(partition)) < 0:
        raise InvalidPartitions(f"partition {partition}: they begin at 0")
    headers = headers or ()
    encode_headers(headers)
    fields = {
        "value": _coded(value),
        "key": _coded(key),
        "partition": partition,
        "timestamp_ms": timestamp_ms if timestamp_ms is None else checked_time(timestamp_ms),
        "headers": [[name, _coded(content)] for name, content in headers],
    }
    return json.dumps({name: each for name, each in fields.items() if each not in (None, [])})


def of_text(text: str) -> dict[str, Any]:
    """Return the arguments of `Producer.send` that this text contains, all but the topic."""
    fields = json.loads(text)
    return {
        "value": _decoded(fields.get("value")),
        "key": _decoded(fields.get("key")),
        "partition": fields.get("partition"),
        "timestamp_ms": fields.get("timestamp_ms"),
        "headers": tuple((name, _decoded(each)) for name, each in fields.get("headers", [])),
    }


def _coded(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(as_bytes(content)).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
