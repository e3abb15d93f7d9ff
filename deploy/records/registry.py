"""Decoders by a Schema Registry: Avro, JSON Schema, Protobuf; extra `schema`.

The client and the first two are confluent-kafka's own. Its Protobuf deserializer wants a generated
class; here the class is made of the registry's descriptors, with the client's public parts alone.
"""

import base64
import binascii
import io
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ...client.fetch.record_reader import ConsumerRecord
from ..cluster.failure import Failure

MODULES = {
    "avro": ("confluent_kafka", "httpx2|httpx", "authlib", "cachetools", "fastavro"),
    "jsonschema": ("confluent_kafka", "httpx2|httpx", "authlib", "cachetools", "jsonschema"),
    "protobuf": (
        "confluent_kafka",
        "httpx2|httpx",
        "authlib",
        "cachetools",
        "google.protobuf",
        "google.type",
    ),
}
SUBJECTS = {"subject.name.strategy.type": "TOPIC"}  # no further request for each record
DEPTH_MAX = 32  # of references
ANSWER_S = 10.0  # of a registry; without, one that says nothing is waited for without end
Registered = Callable[[bytes, ConsumerRecord], Any]
ID_BYTES, MAGIC_MAX = 5, 1  # a schema id in front of the data


def registry_decoder(
    how: Literal["avro", "jsonschema", "protobuf"], part: Literal["key", "value"], url: str
) -> Registered:
    """Return a function from a key or value to what it says; it raises ValueError.

    Failure where the extra is not installed; a registry that does not answer is one, too.
    """
    require_packages(how)
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.serialization import (
        MessageField,
        SerializationContext,
        SerializationError,
    )

    try:
        client = SchemaRegistryClient({"url": url, "max.retries": 1, "timeout": ANSWER_S})
    except ValueError as problem:
        raise Failure(f"--registry {url}: {problem}.", exit_code=2) from None
    decode = _deserializer(how, client)
    field = MessageField.KEY if part == "key" else MessageField.VALUE

    def decoded(data: bytes, record: ConsumerRecord) -> Any:
        headers: list[Any] = list(record.headers)
        if not any(name == f"__{part}_schema_id" for name, _ in headers) and (
            len(data) < ID_BYTES or data[0] > MAGIC_MAX
        ):
            raise ValueError("it begins with no schema id, so no serializer of a registry wrote it")
        try:
            return decode(data, SerializationContext(record.topic, field, headers))
        except SchemaRegistryError as problem:
            raise ValueError(f"the registry answers: {problem.error_message}") from None
        except (SerializationError, ValueError, EOFError) as problem:
            raise ValueError(str(problem).rstrip(".") or type(problem).__name__) from None
        except Exception as problem:
            if _is_unreachable(problem):
                raise Failure(
                    f"The Schema Registry {url} does not answer: {problem}. Name another one with "
                    "--registry or SCHEMA_REGISTRY_URL."
                ) from None
            raise ValueError(f"{type(problem).__name__}: {problem}") from None

    return decoded


def require_packages(how: str) -> None:
    """Failure, with the command that helps, unless a decoder's packages are installed."""
    missing = [
        each.split("|")[0]
        for each in MODULES[how]
        if not any(_is_there(module) for module in each.split("|"))
    ]
    if missing:
        command = f"{Path(sys.executable).name} -m pip install '.[schema]'"
        raise Failure(
            f"--decode {how} needs {' and '.join(missing)}. In a checkout of oncelog: {command}",
            exit_code=2,
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not
        return False


def _is_unreachable(problem: Exception) -> bool:
    """Whether it comes from the HTTP client, whichever the library uses."""
    return type(problem).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def _deserializer(how: str, client: Any) -> Callable[[bytes, Any], Any]:
    made: Any  # its types hide the arguments
    if how == "avro":
        from confluent_kafka.schema_registry import avro

        made = avro.AvroDeserializer
        return made(client, conf=SUBJECTS)
    if how == "jsonschema":
        from confluent_kafka.schema_registry import json_schema

        made = json_schema.JSONDeserializer
        return made(None, schema_registry_client=client, conf=SUBJECTS)
    return _ProtobufDecoder(client)


class _ProtobufDecoder:
    """From a record to a dictionary, by the descriptors that the registry has."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._files: dict[str, Any] = {}  # by the schema's id or GUID

    def __call__(self, data: bytes, context: Any) -> Any:
        from confluent_kafka.schema_registry import dual_schema_id_deserializer
        from confluent_kafka.schema_registry.serde import SchemaId
        from confluent_kafka.serialization import SerializationError
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        schema_id = SchemaId("PROTOBUF")
        payload: io.BytesIO = dual_schema_id_deserializer(data, context, schema_id)
        message = GetMessageClass(self._type(schema_id))()
        try:
            message.ParseFromString(payload.read())
        except DecodeError as problem:
            raise SerializationError(str(problem)) from None
        return MessageToDict(message, preserving_proto_field_name=True)

    def _type(self, schema_id: Any) -> Any:
        """The descriptor of the message that the indexes name: of a file, then of a message."""
        name = str(schema_id.id if schema_id.id is not None else schema_id.guid)
        if name not in self._files:
            schema = (
                self._client.get_schema(schema_id.id, fmt="serialized")
                if schema_id.id is not None
                else self._client.get_schema_by_guid(name, fmt="serialized")
            )
            self._files[name] = self._file(schema)
        first, *inner = schema_id.message_indexes or [0]
        try:
            found = list(self._files[name].message_types_by_name.values())[first]
            for index in inner:
                found = found.nested_types[index]
        except IndexError:
            at = schema_id.message_indexes
            raise ValueError(f"its schema {name} has no message at {at}") from None
        return found

    def _file(self, schema: Any) -> Any:
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        self._add(pool, schema, "schema.proto", 0)
        return pool.FindFileByName("schema.proto")

    def _add(self, pool: Any, schema: Any, name: str, depth: int) -> None:
        """Put a schema into a pool, behind all that it refers to."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError

        if depth > DEPTH_MAX:
            raise ValueError("its schema's references lead in a circle")
        for reference in schema.references or ():
            found = self._client.get_version(
                reference.subject, reference.version, deleted=True, fmt="serialized"
            )
            if not _has(pool, reference.name):
                self._add(pool, found.schema, reference.name, depth + 1)
        file = FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(schema.schema_str, validate=True))
        except (binascii.Error, ValueError, DecodeError):
            raise ValueError(
                "the registry gives no serialized descriptor of its schema (?format=serialized)"
            ) from None
        file.name = name
        for dependency in file.dependency:
            if not _has(pool, dependency):
                _add_known(pool, dependency)
        pool.Add(file)


def _has(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _add_known(pool: Any, name: str) -> None:
    """Put a file of Google's or Confluent's own into a pool: no registry has those."""
    from confluent_kafka.schema_registry import protobuf  # loads them all
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import Default

    assert protobuf
    try:
        known = Default().FindFileByName(name)
    except KeyError:
        raise ValueError(f"its schema needs {name}, which the registry does not name") from None
    file = FileDescriptorProto()
    known.CopyToProto(file)
    for dependency in file.dependency:
        if not _has(pool, dependency):
            _add_known(pool, dependency)
    pool.Add(file)
