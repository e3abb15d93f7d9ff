"""Test values in Avro, JSON Schema and Protobuf with the schemas of a real registry."""

import gc
import json
import socket
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import run
from oncelog.cli.records import registry as ours
from oncelog.cli.records.registry import registry_decoder, require_packages
from oncelog.client.consumer import ConsumerRecord
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster

from . import apicurio

# The registry client keeps connections until garbage collection, and Python warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

AVRO = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "item", "type": "string"},
        {"name": "photo", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"id": {"type": "integer"}}, "required": ["id"],
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    yield
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


def test_registry_format_without_its_extra_is_refused_with_a_clear_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ours, "_is_there", lambda module: module == "confluent_kafka")
    for how in ("avro", "jsonschema", "protobuf"):
        with pytest.raises(Failure, match=r"In a checkout of oncelog: .*install '\.\[schema\]'"):
            require_packages(how)


def needs_extra(how: str) -> None:
    try:
        require_packages(how)
    except Failure as failure:
        pytest.skip(str(failure))


@pytest.mark.parametrize("how", ["avro", "jsonschema", "protobuf"])
def test_registry_decoder_of_bytes_without_a_schema_id_raises_value_error(how: Any) -> None:
    needs_extra(how)
    decode = registry_decoder(how, "value", "http://127.0.0.1:1")
    for data in (b"", b"text", b"plain text"):
        with pytest.raises(ValueError, match="begins with no schema id"):
            decode(data, ConsumerRecord("t", 0, 0, 0, None, data))


@pytest.mark.parametrize("how", ["avro", "jsonschema", "protobuf"])
def test_registry_decoder_with_an_unreachable_registry_raises_an_error_with_the_url(
    how: Any,
) -> None:
    needs_extra(how)
    decode = registry_decoder(how, "value", "http://127.0.0.1:1")
    data = b"\0\0\0\0\1\0\2\4\6"
    with pytest.raises(Failure, match=r"Registry http://127\.0\.0\.1:1 does not answer"):
        decode(data, ConsumerRecord("t", 0, 0, 0, None, data))


def test_registry_decoder_with_a_silent_registry_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_extra("avro")
    monkeypatch.setattr(ours, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        decode = registry_decoder("avro", "value", url)
        data = b"\0\0\0\0\1\0\2\4\6"
        with pytest.raises(Failure, match=r"does not answer: .*timed out"):
            decode(data, ConsumerRecord("t", 0, 0, 0, None, data))


def test_registry_decoder_of_protobuf_needs_only_the_descriptors() -> None:
    """The registry is confluent-kafka's mock, and the decoder has no class of the message type.

    The message type is nested in another, and its file imports another file.
    """
    needs_extra("protobuf")
    from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf
    from confluent_kafka.serialization import MessageField, SerializationContext

    made: Any = protobuf.ProtobufSerializer
    order, client = order_type(), SchemaRegistryClient.new_client({"url": "mock://"})
    context = SerializationContext("t", MessageField.VALUE)
    message = order(id=7, item="tea")
    message.at.seconds = 1_769_860_800
    data = made(order, client, {"use.deprecated.format": False})(message, context)
    assert ours._deserializer("protobuf", client)(data, context) == {
        "id": "7", "item": "tea", "at": "2026-01-31T12:00:00Z",
    }  # fmt: skip


# -- with a real one


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for how in ("avro", "jsonschema", "protobuf"):
        needs_extra(how)
    if why := apicurio.why_there_is_none():
        pytest.skip(why)
    with apicurio.registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        yield running


def produced(cluster: Cluster, topic: str, serializer: Any, content: Any) -> None:
    """Write one record with a serializer of confluent-kafka, as applications do."""
    from confluent_kafka import Producer
    from confluent_kafka.serialization import MessageField, SerializationContext

    data = serializer(content, SerializationContext(topic, MessageField.VALUE))
    producer = Producer(cluster.client_config())
    producer.produce(topic, data)
    assert producer.flush(30) == 0


def consumed(
    cluster: Cluster, capsys: Any, topic: str, how: str, url: str, count: int = 1
) -> list[Any]:
    """Return the `count` values that `oncelog consume --decode` prints for a topic."""
    capsys.readouterr()
    options = ("--decode", how, "--registry", url, "--format", "json", "--data", str(cluster.data))
    assert run(["consume", topic, *options]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == count
    return [json.loads(line)["value"] for line in lines]


@pytest.mark.kafka
@pytest.mark.cluster
def test_consume_with_an_avro_registry_prints_the_decoded_value(
    cluster: Cluster, url: str, capsys: Any
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient, avro

    made: Any = avro.AvroSerializer
    serializer = made(SchemaRegistryClient({"url": url}), json.dumps(AVRO))
    order = {"id": 7, "item": "tea", "photo": b"\xff\0", "at": 1_769_860_800_000}
    produced(cluster, "avro", serializer, order)
    assert consumed(cluster, capsys, "avro", "avro", url) == [{
        "id": 7, "item": "tea", "photo": "/wA=", "at": "2026-01-31T12:00:00+00:00",
    }]  # fmt: skip


@pytest.mark.kafka
@pytest.mark.cluster
def test_consume_with_a_json_schema_registry_prints_the_decoded_value(
    cluster: Cluster, url: str, capsys: Any
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient, json_schema

    made: Any = json_schema.JSONSerializer
    serializer = made(json.dumps(JSON_SCHEMA), SchemaRegistryClient({"url": url}))
    produced(cluster, "jsonschema", serializer, {"id": 7, "more": [1, None]})
    assert consumed(cluster, capsys, "jsonschema", "jsonschema", url) == [{
        "id": 7, "more": [1, None],
    }]  # fmt: skip


@pytest.mark.kafka
@pytest.mark.cluster
def test_consume_with_a_protobuf_registry_prints_the_decoded_value(
    cluster: Cluster, url: str, capsys: Any
) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf

    inner = order_type()
    conf = {"use.deprecated.format": False}
    made: Any = protobuf.ProtobufSerializer
    serializer = made(inner, SchemaRegistryClient({"url": url}), conf)
    message = inner(id=7, item="tea")
    message.at.seconds = 1_769_860_800
    produced(cluster, "protobuf", serializer, message)
    assert consumed(cluster, capsys, "protobuf", "protobuf", url) == [{
        "id": "7", "item": "tea", "at": "2026-01-31T12:00:00Z",
    }]  # fmt: skip


ITEM: dict[str, Any] = {"id": "7", "item": "tea", "at": "2026-01-31T12:00:00Z"}
WRITTEN: dict[str, Any] = {
    "avro": {"id": 7, "item": "tea", "photo": "/wA=", "at": "2026-01-31T12:00:00+00:00"},
    "jsonschema": {"id": 7, "more": [1, None]},
    "protobuf": ITEM,
}


def schema_file(folder: Path, how: str) -> Path:
    """Write and return a schema file of the format `how`.

    A Protobuf file has the format of `protoc --descriptor_set_out`.
    """
    file = folder / "schema"
    if how != "protobuf":
        file.write_text(json.dumps(AVRO if how == "avro" else JSON_SCHEMA))
        return file
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    made = FileDescriptorSet()
    order_type().DESCRIPTOR.file.CopyToProto(made.file.add())
    content: FileDescriptorProto = made.file[0]
    order = content.message_type[1].nested_type.pop()
    del content.message_type[:]
    content.message_type.append(order)
    file.write_bytes(made.SerializeToString())
    return file


@pytest.mark.kafka
@pytest.mark.cluster
@pytest.mark.parametrize("how", list(WRITTEN))
def test_consume_of_a_value_encoded_by_produce_prints_that_value(
    cluster: Cluster, url: str, capsys: Any, tmp_path: Path, how: Any
) -> None:
    """The first `produce` registers a schema file. The second uses the topic's newest schema."""
    content, topic = WRITTEN[how], f"written-{how}"
    assert run(["topic", "create", topic, "--data", str(cluster.data)]) == 0
    (tmp_path / "lines").write_text(json.dumps(content) + "\n")
    (tmp_path / "json").write_text(json.dumps({"value": content}) + "\n")
    there = ["--encode", how, "--registry", url, "--data", str(cluster.data)]
    given = ["--schema", str(schema_file(tmp_path, how))]
    for more in ([str(tmp_path / "lines"), *given], [str(tmp_path / "json"), "--json"]):
        assert run(["produce", topic, *more, *there]) == 0, capsys.readouterr().err
    assert consumed(cluster, capsys, topic, how, url, 2) == [content, content]


@pytest.mark.kafka
@pytest.mark.cluster
@pytest.mark.parametrize("how", list(WRITTEN))
def test_produce_with_an_unusable_schema_or_value_is_refused_with_a_clear_message(
    cluster: Cluster, url: str, capsys: Any, tmp_path: Path, how: Any
) -> None:
    topic, there = f"refused-{how}", ["--registry", url, "--data", str(cluster.data)]
    schema = schema_file(tmp_path, how)
    given = ["--schema", str(schema), "--encode", how]
    assert run(["topic", "create", topic, "--data", str(cluster.data)]) == 0
    (tmp_path / "lines").write_text('{"id": "tea"}\n')
    assert run(["produce", topic, str(tmp_path / "lines"), "--encode", how, *there]) == 1
    assert f"schema {topic}-value of the registry" in " ".join(capsys.readouterr().err.split())
    assert run(["produce", topic, str(tmp_path / "lines"), *given, *there]) == 1
    assert "lines:1 cannot be encoded" in " ".join(capsys.readouterr().err.split())
    schema.write_text("{")
    assert run(["produce", topic, str(tmp_path / "lines"), *given, *there]) == 1
    assert "schema cannot be used" in " ".join(capsys.readouterr().err.split())
    other = ["--encode", "protobuf" if how != "protobuf" else "avro"]
    assert run(["produce", topic, str(tmp_path / "lines"), *other, *there]) == 1
    assert "it is of the type" in capsys.readouterr().err


def order_type() -> Any:
    """Return the class of Shop.Order, a message that is nested in the second message of its file.

    The file imports another Protobuf file.
    """
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Shop").nested_type.add(name="Order")
    kinds = FieldDescriptorProto
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="item", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="at", number=3, type=kinds.TYPE_MESSAGE, label=kinds.LABEL_OPTIONAL,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    pool = descriptor_pool.Default()
    with suppress(TypeError):  # the pool has this file already
        pool.Add(file)
    found = pool.FindMessageTypeByName("shop.Shop.Order")
    return message_factory.GetMessageClass(found)


@pytest.mark.kafka
@pytest.mark.cluster
def test_consume_of_a_value_with_an_unknown_schema_id_fails_and_names_the_record(
    cluster: Cluster, url: str, capsys: Any
) -> None:
    produced(cluster, "odd", lambda content, _: content, b"\0\0\x0f\xff\xff\0rest")
    for how in ("avro", "jsonschema", "protobuf"):
        options = ("--decode", how, "--registry", url, "--data", str(cluster.data))
        assert run(["consume", "odd", *options]) == 1
        said = capsys.readouterr().err
        assert "The value of odd/0 at offset 0 cannot be decoded: the registry answers" in said
