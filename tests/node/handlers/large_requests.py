"""Requests of any API with a given number of elements, made from the schema of a version."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from oncelog.wire.messages import control
from oncelog.wire.messages.schema import Kind, kinds_of

TOPIC_NAMES = {"name", "topic", "topic_name", "resource_name"}
LARGE_INDEXES = {"partition_index", "partition", "partition_indexes", "partitions"}
PLAIN: dict[str, Any] = {  # values with which a request passes the first checks
    "session_timeout": 10_000,
    "timeout": 5_000,
    "resource_type": 2,  # a topic
    "group_id": "g",
    "member_id": "",
    "committed_metadata": "m",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "num_partitions": 1,
    "replication_factor": 1,
    "response_partition_limit": 2_000,
    "acks": -1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "producer_id": 1,
    "transaction_timeout": 10_000,
    "tuple_filter": None,
}


class LargeRequest(NamedTuple):
    """A request with a long array. `array` is the path of the array in the schema."""

    key: int
    version: int
    array: str
    body: bytes


class Names(NamedTuple):
    """Names and ids of topics, some of which may not exist."""

    topics: Sequence[str]
    ids: Sequence[bytes]


def large_requests(key: int, version: int, items: int, names: Names) -> Iterator[LargeRequest]:
    """Yield a request for each array of the schema, with about `items` elements in the array."""
    schema = control._schema(key, version, "request")
    for path in _arrays(schema):
        values = _message(schema, path, items, names, 0)
        yield LargeRequest(
            key, version, ".".join(path), control.encode_request(key, version, values)
        )


def plain_request(key: int, version: int, names: Names) -> bytes:
    """Return an encoded request with one element in each array."""
    schema = control._schema(key, version, "request")
    return control.encode_request(key, version, _message(schema, (), 1, names, 0))


def _arrays(schema: type) -> Iterator[tuple[str, ...]]:
    for kind in kinds_of(schema):
        inner = [] if kind.entity is None else list(_arrays(kind.entity))
        if kind.is_array:
            yield (kind.name,)
        yield from ((kind.name, *path) for path in inner)


def _message(
    schema: type, path: tuple[str, ...], items: int, names: Names, number: int
) -> dict[str, Any]:
    return {
        kind.name: _value(
            kind, path[1:] if path[:1] == (kind.name,) else None, items, names, number
        )
        for kind in kinds_of(schema)
    }


def _value(kind: Kind, inner: tuple[str, ...] | None, items: int, names: Names, number: int) -> Any:
    """Return a value of a field.

    `inner` is the path from this field to the long array, or None for other fields.
    """
    if not kind.is_array:
        if kind.entity is not None and kind.is_nullable and inner is None:
            return None
        return _one(kind, inner, items, names, number)
    if inner == ():
        return [_one(kind, None, items, names, n) for n in range(items // _elements(kind))]
    return [_one(kind, inner, items, names, number)]


def _one(kind: Kind, inner: tuple[str, ...] | None, items: int, names: Names, number: int) -> Any:
    if kind.entity is not None:
        return _message(kind.entity, inner or (), items, names, number)
    if kind.name in PLAIN and not kind.is_array:
        return PLAIN[kind.name]
    if kind.name in TOPIC_NAMES or (kind.name == "topic_names"):
        return names.topics[number % len(names.topics)]
    if kind.wire_type == "uuid":
        return names.ids[number % len(names.ids)]
    if kind.wire_type == "string":
        return f"{kind.name}-{number}"
    if kind.name in LARGE_INDEXES:
        return number
    return number % 100 if kind.is_array else kind.default


def _elements(kind: Kind) -> int:
    """Return the number of array elements in one element of this type, including itself."""
    if kind.entity is None:
        return 1
    return 1 + sum(_elements(each) for each in kinds_of(kind.entity) if each.is_array)
