"""Test that the type stubs of messages in wire/messages equal kio's schemas.

After a change of the served APIs write them anew, and format them:
.venv/bin/python tests/tidy/test_message_types.py; .venv/bin/ruff format wire
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.wire.messages.apis import APIS, ApiSchema
from oncelog.wire.messages.control import _schema
from oncelog.wire.messages.schema import FIXED, Kind, kinds_of

FOLDER = Path(__file__).resolve().parents[2] / "wire/messages"
WITH_CODECS_OF_THEIR_OWN = (0, 1)  # Produce, Fetch
PLAIN = {"string": "str", "bytes": "bytes", "records": "bytes", "uuid": "bytes", "bool": "bool"}
MADE = "# Made by tests/tidy/test_message_types.py."
RESPONSES_HEAD = f"""{MADE}
from typing import TypedDict, TypeVar

from .schema_encoder import Each
Item = TypeVar("Item")
Array = list[Item] | tuple[Item, ...] | Each[Item]"""
KEYS_HEAD = f"""{MADE}
from typing import Generic, TypeVar

from . import requests, responses

Request = TypeVar("Request")
Response = TypeVar("Response")
class ApiKey(int, Generic[Request, Response]): ..."""
Fields = dict[str, str]


def requests_stub() -> str:
    lines = [MADE, ""]
    for key, api in _apis().items():
        name = f"{api.name}Request"
        entities = _entities(key, api, "request", name)
        own = entities.pop(name)
        lines += [f"class {name}:", *_indented(own)]
        for entity, fields in entities.items():
            lines += [f"    class {entity}:", *_indented(fields, 2)]
        if not own:
            lines.append("    ...")
    return "\n".join(lines)


def responses_stub() -> str:
    """Return the type stub of responses. Fields with defaults may be absent in a dictionary."""
    lines = [RESPONSES_HEAD, ""]
    for key, api in _apis().items():
        entities = _entities(key, api, "response", api.name)
        lines.append(f"class {api.name}:")
        for entity, fields in entities.items():
            name = "Response" if entity == f"{api.name}Response" else entity
            lines += [f"    class {name}(TypedDict, total=False):", *_indented(fields, 2)]
    return "\n".join(lines)


def keys_stub() -> str:
    """Return the type stub of API keys, which have the types of their requests and responses."""
    lines = [KEYS_HEAD]
    for api in _apis().values():
        types = f"requests.{api.name}Request, responses.{api.name}.Response"
        lines.append(f"{api.module.upper()}: ApiKey[{types}]")
    return "\n".join(lines)


STUBS = {"requests": requests_stub, "responses": responses_stub, "api_keys": keys_stub}


def _apis() -> dict[int, ApiSchema]:
    return {key: APIS[key] for key in sorted(APIS) if key not in WITH_CODECS_OF_THEIR_OWN}


def _indented(fields: Fields, depth: int = 1) -> Iterator[str]:
    return (f"{'    ' * depth}{field}: {kind}" for field, kind in fields.items())


def _entities(key: int, api: ApiSchema, direction: str, outer: str) -> dict[str, Fields]:
    """Return the fields of a message and of its nested structures, from all versions together."""
    name = api.name + direction.capitalize()
    entities: dict[str, Fields] = {}
    for version in range(api.oldest, api.newest + 1):
        schema = _schema(key, version, direction)
        _collect(schema, entities, outer, "list" if name == outer else "Array")
    return entities


def _collect(cls: type[Any], entities: dict[str, Fields], outer: str, array: str) -> None:
    fields = entities.setdefault(cls.__name__, {})
    for kind in kinds_of(cls):
        plain = _type_of(kind, outer, array)
        known = fields.get(kind.name, plain)
        fields[kind.name] = known if known.endswith(" | None") else plain
        if kind.entity is not None:
            _collect(kind.entity, entities, outer, array)


def _type_of(kind: Kind, outer: str, array: str) -> str:
    if kind.entity is not None:
        plain = f"{outer}.{kind.entity.__name__}"
    elif kind.wire_type in PLAIN:
        plain = PLAIN[kind.wire_type]
    else:
        plain = "float" if kind.wire_type == "float64" else "int"
        assert kind.wire_type in FIXED
    if kind.is_array:
        plain = f"{array}[{plain}]"
    is_nullable = kind.is_nullable and (kind.is_array or kind.wire_type not in {*FIXED, "uuid"})
    return f"{plain} | None" if is_nullable else plain


@pytest.mark.parametrize("name", STUBS)
def test_message_type_stubs_equal_those_generated_from_the_schemas(name: str) -> None:
    stub = (FOLDER / f"{name}.pyi").read_text(encoding="utf-8")
    assert ast.unparse(ast.parse(stub)) == ast.unparse(ast.parse(STUBS[name]()))


if __name__ == "__main__":
    for name, written in STUBS.items():
        (FOLDER / f"{name}.pyi").write_text(written() + "\n", encoding="utf-8")
