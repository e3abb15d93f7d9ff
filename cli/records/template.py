"""Records printed with a template such as '%k %v %T', as in kcat and rpk. The file does no I/O."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from ...client.fetch.record_reader import ConsumerRecord
from ...deploy.cluster.failure import Failure

Shown = tuple[bytes | None, bytes | None]  # key and value as they are printed
Part = Callable[[ConsumerRecord, Shown], bytes]
FIELDS = (
    "%k key, %v value, %h headers, %T timestamp in ms, %d the same as a date, %t topic, "
    "%p partition, %o offset, %K and %V bytes of key and value, %% a percent sign"
)
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", "c": b""}
_TOKEN = re.compile(r"%(.?)|\\x([0-9a-fA-F]{2})|\\(.?)|([^%\\]+)", re.DOTALL)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compiled(text: str) -> Callable[[ConsumerRecord, Shown], bytes]:
    r"""Return a function that formats records by a template. Raises Failure for an unknown field.

    A line end is added, unless the template ends with an escape such as \n or \0. The escape \c
    only prevents the line end.
    """
    parts: list[Part] = []
    ends_with_escape = False
    for found in _TOKEN.finditer(text):
        field, code, escape, plain = found.groups()
        ends_with_escape = code is not None or escape is not None
        if plain is not None:
            parts.append(_constant(plain.encode()))
        elif code is not None:
            parts.append(_constant(bytes.fromhex(code)))
        elif escape is not None:
            parts.append(_constant(_escape(escape)))
        elif field == "%":
            parts.append(_constant(b"%"))
        elif field in _FIELDS:
            parts.append(_FIELDS[field])
        else:
            raise Failure(f"%{field} is no field of a template: {FIELDS}.", exit_code=2)
    if not ends_with_escape:
        parts.append(_constant(b"\n"))
    return lambda record, shown: b"".join([part(record, shown) for part in parts])


def headers_in_words(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return headers as name=value,..."""
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in headers)


def date_of(timestamp_ms: int) -> str:
    """Return a wall-clock time as an ISO date in UTC.

    Returns the milliseconds as text if the time is outside of the calendar.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _escape(character: str) -> bytes:
    if character not in ESCAPES:
        raise Failure(
            f"\\{character} is no escape of a template: \\n, \\t, \\r, \\0, \\\\, \\xNN, and \\c "
            "at the end for no line end.",
            exit_code=2,
        )
    return ESCAPES[character]


def _constant(text: bytes) -> Part:
    return lambda record, shown: text


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_FIELDS: dict[str, Part] = {
    "k": lambda record, shown: shown[0] or b"",
    "v": lambda record, shown: shown[1] or b"",
    "h": lambda record, shown: headers_in_words(record.headers),
    "T": lambda record, shown: b"%d" % record.timestamp,
    "d": lambda record, shown: date_of(record.timestamp).encode(),
    "t": lambda record, shown: record.topic.encode(),
    "p": lambda record, shown: b"%d" % record.partition,
    "o": lambda record, shown: b"%d" % record.offset,
    "K": lambda record, shown: _size(record.key),
    "V": lambda record, shown: _size(record.value),
}
