"""Decoders that use a Schema Registry, for Avro, JSON Schema and Protobuf.

They need the extra `schema`. The registry's client and the decoders of Avro and JSON Schema are
confluent-kafka's own. The decoder of Protobuf is in `protobuf_types`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ...client.fetch.record_reader import ConsumerRecord
from ...deploy.cluster.failure import Failure

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
ANSWER_S = 10.0  # without a timeout, a silent registry would block for ever
ByRegistry = Literal["avro", "jsonschema", "protobuf"]
Part = Literal["key", "value"]
Registered = Callable[[bytes, ConsumerRecord], Any]
ID_BYTES, MAGIC_MAX = 5, 1  # a schema id in front of the data


def registry_decoder(how: ByRegistry, part: Part, url: str) -> Registered:
    """Return a function that decodes a record's key or value.

    Raises Failure if the extra is not installed or the URL is invalid. The returned function raises
    ValueError with the reason for undecodable bytes, and Failure if the registry does not answer.
    """
    require_packages(how)
    decode = _deserializer(how, open_registry(url))

    def decoded(data: bytes, record: ConsumerRecord) -> Any:
        headers: list[Any] = list(record.headers)
        if not any(name == f"__{part}_schema_id" for name, _ in headers) and (
            len(data) < ID_BYTES or data[0] > MAGIC_MAX
        ):
            raise ValueError("it begins with no schema id, so no serializer of a registry wrote it")
        with problems_in_words(url):
            return decode(data, context_of(record.topic, part, headers))

    return decoded


def context_of(topic: str, part: Part, headers: Any = None) -> Any:
    """Return confluent-kafka's SerializationContext for a topic's key or value."""
    from confluent_kafka.serialization import MessageField, SerializationContext

    field = MessageField.KEY if part == "key" else MessageField.VALUE
    return SerializationContext(topic, field, headers)


def open_registry(url: str) -> Any:
    """Return confluent-kafka's client of a registry. Raises Failure for an invalid URL."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    try:
        return SchemaRegistryClient({"url": url, "max.retries": 1, "timeout": ANSWER_S})
    except ValueError as problem:
        raise Failure(f"--registry {url}: {problem}.", exit_code=2) from None


@contextmanager
def problems_in_words(url: str) -> Iterator[None]:
    """Convert every exception in the block to ValueError with a reason.

    Raises Failure instead when the registry does not answer.
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError
    from confluent_kafka.serialization import SerializationError

    try:
        yield
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


def require_packages(how: str) -> None:
    """Raise Failure, with the command that installs them, if a format's packages are missing."""
    missing = [
        each.split("|")[0]
        for each in MODULES[how]
        if not any(_is_there(module) for module in each.split("|"))
    ]
    if missing:
        command = f"{Path(sys.executable).name} -m pip install '.[schema]'"
        raise Failure(
            f"{how} needs {' and '.join(missing)}. In a checkout of oncelog: {command}",
            exit_code=2,
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not
        return False


def _is_unreachable(problem: Exception) -> bool:
    """Return whether an error is from the HTTP client, which could not reach the registry."""
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
    from .protobuf_types import ProtobufDecoder

    return ProtobufDecoder(client)
