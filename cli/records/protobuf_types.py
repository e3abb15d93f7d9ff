"""Protobuf messages from the descriptors in a Schema Registry, without generated classes.

confluent-kafka's own serializers need a generated class. Here the class is made from the
descriptors, with public functions of the library only.
"""

import base64
import binascii
import io
from typing import Any

DEPTH_MAX = 32  # of references


class ProtobufTypes:
    """The Protobuf message classes of the schemas in a registry, loaded when first used."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._files: dict[str, Any] = {}  # by the schema's id or GUID

    def message_class(self, schema_id: Any) -> Any:
        """Return the message class that a record's schema id and message indexes name.

        The first index counts the messages of the schema's file. Each further index counts the
        messages nested in the message before. Raises ValueError for an index without a message.
        """
        from google.protobuf.message_factory import GetMessageClass

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
        return GetMessageClass(found)

    def _file(self, schema: Any) -> Any:
        from google.protobuf.descriptor_pool import DescriptorPool

        pool = DescriptorPool()
        self._add(pool, schema, "schema.proto", 0)
        return pool.FindFileByName("schema.proto")

    def _add(self, pool: Any, schema: Any, name: str, depth: int) -> None:
        """Add a schema to a pool as file `name`, after all schemas to which it refers.

        `depth` counts the references that led here. Raises ValueError if they are more than
        DEPTH_MAX, as in a circle.
        """
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


def protobuf_file(data: bytes) -> bytes | None:
    """Return the last file descriptor in the output of `protoc --descriptor_set_out`.

    Returns None if `data` has another format.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    found = FileDescriptorSet()
    try:
        found.ParseFromString(data)
    except DecodeError:
        return None
    return found.file[-1].SerializeToString() if found.file else None


class ProtobufDecoder:
    """A decoder from the Protobuf bytes of a record's key or value to a dictionary."""

    def __init__(self, client: Any) -> None:
        self._types = ProtobufTypes(client)

    def __call__(self, data: bytes, context: Any) -> Any:
        from confluent_kafka.schema_registry import dual_schema_id_deserializer
        from confluent_kafka.schema_registry.serde import SchemaId
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError

        schema_id = SchemaId("PROTOBUF")
        payload: io.BytesIO = dual_schema_id_deserializer(data, context, schema_id)
        message = self._types.message_class(schema_id)()
        try:
            message.ParseFromString(payload.read())
        except DecodeError as problem:
            raise ValueError(str(problem)) from None
        return MessageToDict(message, preserving_proto_field_name=True)


def _has(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _add_known(pool: Any, name: str) -> None:
    """Add a Protobuf file of Google or Confluent to a pool, after the files that it imports.

    No registry has these files. Raises ValueError for an unknown file.
    """
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
