"""A record as a line of JSON, in both directions: `consume --format json`, `produce --json`.

Bytes that are not UTF-8 are in base64, with a field "value_encoding": "base64". Headers are a list,
since a name may occur twice and the order counts. The file does no I/O.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...client.fetch.record_reader import ConsumerRecord

BASE64, HEX, JSON = "base64", "hex", "json"
ENCODINGS = ("utf-8", BASE64, HEX, JSON)
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
Headers = tuple[tuple[str, bytes | None], ...]


class NotARecord(Exception):
    """The error of a line that is not a record. Its text is the reason."""


class Decoded(NamedTuple):
    """The result of a decoder, a text or a value that JSON represents with help of `as_text`."""

    content: Any
    encoding: str


class NewRecord(NamedTuple):
    """A record to send. The producer chooses the partition and timestamp if they are None."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def encoded(data: bytes | None) -> Decoded | None:
    """Return bytes as text if they are UTF-8, else in base64."""
    if data is None:
        return None
    try:
        return Decoded(data.decode(), "utf-8")
    except UnicodeDecodeError:
        return Decoded(base64.b64encode(data).decode(), BASE64)


def fields_of(
    record: ConsumerRecord, key: Decoded | None = None, value: Decoded | None = None
) -> dict[str, Any]:
    """Return a record as fields for JSON.

    `key` and `value` are the decoded forms. Without them, the record's own bytes are used.
    """
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(fields, "key", key or encoded(record.key))
    _put(fields, "value", value or encoded(record.value))
    headers: list[dict[str, Any]] = [{"name": name} for name, _ in record.headers]
    for header, (_, each) in zip(headers, record.headers, strict=True):
        _put(header, "value", encoded(each))
    fields["headers"] = headers
    return fields


def _put(fields: dict[str, Any], name: str, found: Decoded | None) -> None:
    fields[name] = None if found is None else found.content
    if found is not None and found.encoding != "utf-8":
        fields[f"{name}_encoding"] = found.encoding


def parsed(data: bytes) -> Any:
    """Return the parsed JSON, or raise ValueError with the reason if it is invalid."""
    try:
        return json.loads(data)
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None
    except ValueError as problem:
        raise ValueError(f"it is no JSON ({problem})") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def record_of(line: bytes) -> NewRecord:
    """Return the record of a line, or raise NotARecord.

    Topic and offset in the line are ignored.
    """
    try:
        fields = parsed(line)
    except ValueError as problem:
        raise NotARecord(str(problem)) from None
    if not isinstance(fields, dict):
        raise NotARecord("it is no JSON object")
    known = {"topic", "offset", "partition", "timestamp", "key", "value", "headers"}
    known |= {"key_encoding", "value_encoding"}
    if unknown := sorted(set(fields) - known):
        raise NotARecord(f"a record has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
    return NewRecord(
        _bytes_of(fields, "key"),
        _bytes_of(fields, "value"),
        _headers_of(fields.get("headers")),
        _number_of(fields, "partition", INT32_MAX),
        _number_of(fields, "timestamp", INT64_MAX),
    )


def _bytes_of(fields: Mapping[str, Any], name: str) -> bytes | None:
    content = fields.get(name)
    encoding = fields.get(f"{name}_encoding", "utf-8" if isinstance(content, str) else JSON)
    if encoding == JSON:
        is_null = content is None and f"{name}_encoding" not in fields
        return None if is_null else compact(content).encode()
    if content is None:
        return None
    if encoding not in ENCODINGS or not isinstance(content, str):
        raise NotARecord(f"{name} is a text in {', '.join(ENCODINGS)}, not {encoding!r}")
    try:
        if encoding == BASE64:
            return base64.b64decode(content, validate=True)
        return bytes.fromhex(content) if encoding == HEX else content.encode()
    except (binascii.Error, ValueError):
        raise NotARecord(f"{name} is not in {encoding}") from None


def _headers_of(found: Any) -> Headers:
    """Return headers from JSON, which has the list of `fields_of` or an object of names and values.

    Raises NotARecord for any other form.
    """
    if isinstance(found, dict):
        found = [{"name": name, "value": value} for name, value in found.items()]
    if not isinstance(found or [], list):
        raise NotARecord('headers are a list of {"name": ..., "value": ...}')
    headers: list[tuple[str, bytes | None]] = []
    for each in found or []:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise NotARecord('a header is {"name": ..., "value": ...}')
        if not _is_text(each["name"]):
            raise NotARecord("a header's name is not in utf-8")
        headers.append((each["name"], _bytes_of(each, "value")))
    return tuple(headers)


def _number_of(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    number = fields.get(name)
    if number is None or (type(number) is int and 0 <= number <= most):
        return number
    raise NotARecord(f"{name} is a number from 0 to {most}, not {number!r}")


def compact(content: Any) -> str:
    """Return a value as JSON without spaces, with dates as text and bytes as base64.

    Characters above ASCII are not escaped, except if the text has an unpaired surrogate, which
    UTF-8 cannot represent.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), default=as_text)
    if _is_text(text):
        return text
    return json.dumps(content, separators=(",", ":"), default=as_text)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(content: Any) -> Any:
    """Return text for a value that an Avro decoder returned and that JSON cannot represent.

    Bytes become base64, dates become ISO 8601, and other types their `str`.
    """
    if isinstance(content, bytes):
        return base64.b64encode(content).decode()
    return content.isoformat() if hasattr(content, "isoformat") else str(content)
