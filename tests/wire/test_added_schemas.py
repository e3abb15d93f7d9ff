"""Test that the message classes that kio lacks equal Kafka's JSON (`added_schemas`)."""

import ast
from typing import Any

import pytest

from oncelog.wire.messages.apis import ADDED, APIS
from oncelog.wire.messages.control import _schema
from oncelog.wire.messages.schema import FIXED, Kind, kinds_of

from .added_schemas import FOLDER, Message, definitions, module_text, modules

Shape = tuple[Any, ...]
RENAMED = {  # by Kafka, after the version that kio was made from
    "generation_id_or_member_epoch": "generation_id",
    "acceptable_recovery_lag_legacy": "acceptable_recovery_lag",
}
KIO = [
    (key, version)
    for key, api in APIS.items()
    for version in range(api.oldest, api.newest + 1)
    if key > 1 and (key, version) not in ADDED  # Produce and Fetch have codecs by hand
]


def shape_of(cls: type[Any]) -> list[Shape]:
    return [_shape(kind) for kind in kinds_of(cls)]


def _shape(kind: Kind) -> Shape:
    name = RENAMED.get(kind.name, kind.name)
    wire_type: Any = FIXED.get(kind.wire_type, kind.wire_type)
    if kind.entity is not None:
        wire_type = (kind.entity.__name__, shape_of(kind.entity))
    default = None if kind.is_array else kind.default
    return name, wire_type, kind.tag, kind.is_array, kind.is_nullable, default


def classes_in(text: str) -> list[str]:
    return [ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]


@pytest.mark.kafka
def test_added_schema_modules_equal_the_generated_modules() -> None:
    made = modules()
    written = {file.name: file.read_text() for file in FOLDER.glob("*_v*.py")}
    assert written.keys() == made.keys()
    for name, text in made.items():
        assert classes_in(written[name]) == classes_in(text), name


@pytest.mark.kafka
def test_added_schema_generator_output_equals_kio_for_messages_that_kio_has() -> None:
    """For messages that kio has, the generated classes have the same fields as kio's."""
    known = {each["name"]: each for each in definitions()}
    wrong: list[str] = []
    for key, version in KIO:
        for way in ("Request", "Response"):
            message = Message(known[APIS[key].name + way], key, version)
            made: dict[str, Any] = {"__package__": "oncelog.wire.messages.added"}
            exec(compile(module_text(message), "made", "exec"), made)
            kios = _schema(key, version, message.direction)
            if shape_of(made[kios.__name__]) != shape_of(kios):
                wrong.append(f"{kios.__name__} v{version}")
    assert wrong == []
