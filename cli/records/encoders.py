"""Encoders from JSON to bytes in the format of Confluent's Schema Registry serializers.

They need the extra `schema`.
"""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ...deploy.cluster.failure import Failure
from .json_lines import parsed
from .protobuf_types import ProtobufTypes, protobuf_file
from .registry import (
    SUBJECTS,
    ByRegistry,
    Part,
    context_of,
    open_registry,
    problems_in_words,
    require_packages,
)

Encode = Literal["raw", "avro", "jsonschema", "protobuf"]
TYPES = {"avro": "AVRO", "jsonschema": "JSON", "protobuf": "PROTOBUF"}
Encoder = Callable[[bytes], bytes]
"""From JSON to a schema id and the encoded data; raises ValueError with the reason."""


def encoder(how: ByRegistry, topic: str, part: Part, url: str, file: Path | None) -> Encoder:
    """Return a function that encodes JSON as the key or value of a topic's record.

    The schema is the newest of the subject TOPIC-key or TOPIC-value. With `file`, the schema in
    this file is registered first, and used. Raises Failure if there is no schema, or if the
    registry refuses the file.
    """
    require_packages(how)
    client, subject = open_registry(url), f"{topic}-{part}"
    try:
        with problems_in_words(url):
            schema_id, schema = _schema(client, how, subject, file)
            encode = _FORMATS[how](client, schema_id, schema, (topic, part))
    except ValueError as problem:
        where = f"{subject} of the registry {url}" if file is None else str(file)
        raise Failure(f"The schema {where} cannot be used: {problem}.") from None

    def encoded(data: bytes) -> bytes:
        content = parsed(data)
        with problems_in_words(url):
            return encode(content)

    return encoded


def _schema(client: Any, how: ByRegistry, subject: str, file: Path | None) -> tuple[int, Any]:
    """Register the schema in `file`, or without a file get the newest schema of the subject.

    Return the schema's id and the schema. Raises ValueError for a schema of another format.
    """
    if file is not None:
        from confluent_kafka.schema_registry import Schema

        schema = Schema(_text(file, how), TYPES[how])
        return client.register_schema(subject, schema), schema
    found = client.get_latest_version(subject)
    kind = found.schema.schema_type or "AVRO"
    if kind != TYPES[how]:
        raise ValueError(f"it is of the type {kind}, not {TYPES[how]}")
    return found.schema_id, found.schema


def _text(file: Path, how: ByRegistry) -> str:
    """Return a schema file as text for a registry, with compiled Protobuf in base64."""
    try:
        data = file.read_bytes()
    except OSError as problem:
        raise ValueError(problem.strerror or str(problem)) from None
    if how == "protobuf" and (compiled := protobuf_file(data)) is not None:
        return base64.b64encode(compiled).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not text in UTF-8") from None


def _avro(client: Any, schema_id: int, schema: Any, _: Any) -> Callable[[Any], bytes]:
    from fastavro import schemaless_writer

    from .avro_values import AvroSchema

    def text_of(reference: Any) -> Any:
        return client.get_version(reference.subject, reference.version).schema

    avro, prefix = AvroSchema(schema, text_of), _prefix("avro", schema_id)

    def encode(content: Any) -> bytes:
        out = io.BytesIO(prefix)
        out.seek(0, io.SEEK_END)
        schemaless_writer(out, avro.parsed, avro.value(content))
        return out.getvalue()

    return encode


def _json_schema(
    client: Any, schema_id: int, schema: Any, place: tuple[str, Part]
) -> Callable[[Any], bytes]:
    from confluent_kafka.schema_registry import json_schema

    made: Any = json_schema.JSONSerializer  # its types hide the arguments
    conf = {**SUBJECTS, "auto.register.schemas": False, "use.schema.id": schema_id}
    serializer = made(schema, client, conf=conf)
    context = context_of(*place)
    return lambda content: serializer(content, context)


def _protobuf(client: Any, schema_id: int, *_: Any) -> Callable[[Any], bytes]:
    """Return a function that encodes JSON as the first message of the schema.

    Confluent's serializers choose the first message by default.
    """
    from confluent_kafka.schema_registry.serde import SchemaId
    from google.protobuf.json_format import ParseDict

    first = SchemaId(TYPES["protobuf"], schema_id, message_indexes=[0])
    message_class = ProtobufTypes(client).message_class(first)
    prefix = first.id_to_bytes()
    return lambda content: prefix + ParseDict(content, message_class()).SerializeToString()


def _prefix(how: ByRegistry, schema_id: int) -> bytes:
    from confluent_kafka.schema_registry.serde import SchemaId

    return SchemaId(TYPES[how], schema_id).id_to_bytes()


_FORMATS = {"avro": _avro, "jsonschema": _json_schema, "protobuf": _protobuf}
