"""From a record's bytes to what they say: hex, JSON, or by a Schema Registry."""

from collections.abc import Callable
from typing import Literal, get_args

from ...client.fetch.record_reader import ConsumerRecord
from ...deploy.cluster.failure import Failure
from .json_lines import HEX, JSON, Decoded, parsed
from .registry import ByRegistry, Part, registry_decoder

Decode = Literal["raw", "hex", "json", "avro", "jsonschema", "protobuf"]
Decoder = Callable[[bytes, ConsumerRecord], Decoded]
"""From a record's key or value to what it says; raises ValueError with the reason."""

assert set(get_args(ByRegistry)) < set(get_args(Decode))


def decoder(how: Decode, part: Part, registry: Callable[[], str]) -> Decoder | None:
    """Return what decodes keys or values; None for raw, which are left as they are.

    registry: the address of the Schema Registry, asked for only where one is needed.
    """
    if how == "raw":
        return None
    if how == "hex":
        return lambda data, record: Decoded(data.hex(), HEX)
    if how == "json":
        return lambda data, record: Decoded(parsed(data), JSON)
    decode = registry_decoder(how, part, registry())
    return lambda data, record: Decoded(decode(data, record), JSON)


def decoded(decode: Decoder | None, record: ConsumerRecord, part: Part) -> Decoded | None:
    """Return what a key or a value says; None: it stays as it is. Failure names the record."""
    data = record.value if part == "value" else record.key
    if decode is None or data is None:
        return None
    try:
        return decode(data, record)
    except ValueError as problem:
        option = "--decode" if part == "value" else "--decode-key"
        where = f"{record.topic}/{record.partition}"
        raise Failure(
            f"The {part} of {where} at offset {record.offset} cannot be decoded: {problem}. Its "
            f"bytes are shown by {option} raw or hex."
        ) from None
