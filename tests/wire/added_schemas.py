"""Write the message classes that kio lacks, from the JSON schemas in the jars of Apache Kafka.

The classes have the form of kio's, one module for each message and version, with what our codecs
need. After a change of ADDED, write and format the modules:

.venv/bin/python -m tests.wire.added_schemas

.venv/bin/ruff check --fix wire; .venv/bin/ruff format wire
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

from oncelog.wire.messages.apis import ADDED, APIS

from ..interop.kafka_peer import KAFKA_VERSION, jar_folder

FOLDER = Path(__file__).resolve().parents[2] / "wire/messages/added"
TYPES = {  # Kafka's, and kio's
    "int8": "i8",
    "int16": "i16",
    "uint16": "u16",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "float64": "f64",
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "UUID",
}
DECORATOR = "@dataclass(frozen=True, slots=True, kw_only=True)"


class Message(NamedTuple):
    """The request or the response of an API in one version, with its schema in Kafka's JSON."""

    definition: dict[str, Any]
    api_key: int
    version: int

    @property
    def direction(self) -> str:
        return self.definition["type"]

    @property
    def flexible(self) -> bool:
        return _holds(self.definition["flexibleVersions"], self.version)

    def classes(self) -> Iterator[str]:
        common = {each["name"]: each["fields"] for each in self.definition.get("commonStructs", ())}
        yield from self._classes(self.definition["name"], self.definition["fields"], common, set())

    def _classes(
        self, name: str, fields: list[Any], common: dict[str, Any], known: set[str]
    ) -> Iterator[str]:
        present = [field for field in fields if _holds(field["versions"], self.version)]
        for field in present:
            inner = _element(field["type"])
            if inner not in TYPES and inner not in known:
                known.add(inner)
                yield from self._classes(inner, field.get("fields") or common[inner], common, known)
        head = f"{DECORATOR}\nclass {name}{'(Flexible)' if self.flexible else ''}:"
        body = [f"    {self._field(field)}" for field in present] or ["    pass"]
        yield "\n".join((head, *body))

    def _field(self, field: dict[str, Any]) -> str:
        kafka_type = field["type"]
        inner = _element(kafka_type)
        name, wire_type, annotation = _named(field, inner)
        metadata: dict[str, Any] = {"kafka_type": wire_type} if inner in TYPES else {}
        if _holds(field.get("taggedVersions", "none"), self.version):
            metadata["tag"] = field["tag"]
        default = _default(field, metadata, annotation)
        if kafka_type.startswith("[]"):
            annotation = f"tuple[{annotation}, ...]"
        if inner == "uuid" or _holds(field.get("nullableVersions", "none"), self.version):
            annotation += " | None"
        options = [f"metadata={metadata!r}"] if metadata else []
        options += [f"default={default}"] if default else []
        return f"{name}: {annotation}" + (f" = field({', '.join(options)})" if options else "")


def _element(kafka_type: str) -> str:
    return kafka_type.removeprefix("[]")


def _named(field: dict[str, Any], kafka_type: str) -> tuple[str, str, str]:
    """Return name, wire type and annotation of a field, in the conventions of kio."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
    if name.endswith("error_code"):
        return name, "error_code", "ErrorCode"
    if name.endswith("_ms") and kafka_type in ("int32", "int64"):
        bits = kafka_type.removeprefix("int")
        return name.removesuffix("_ms"), f"timedelta_i{bits}", f"i{bits}Timedelta"
    return name, kafka_type, TYPES.get(kafka_type, kafka_type)


def _default(field: dict[str, Any], metadata: dict[str, Any], annotation: str) -> str:
    """Return the Python source of a field's default value, or "" for a field without a default."""
    given = field.get("default")
    if given is None:
        if field["type"].startswith("[]"):
            return "()" if metadata else ""
        is_tagged_number = "tag" in metadata and annotation.startswith(("i", "u"))
        return f"{annotation}(0)" if is_tagged_number else "False" if annotation == "bool" else ""
    if given == "null":
        return "None"
    if annotation == "str":
        return repr(given)
    if annotation == "bool":
        return str(str(given) == "true")
    if annotation.endswith("Timedelta"):
        return f"{annotation}.parse(timedelta(milliseconds={given}))"
    return f"{annotation}({given})"


def _holds(versions: str, version: int) -> bool:
    """Return whether a version is in a range such as "3+", "0-2", "1" or "none"."""
    if versions == "none":
        return False
    first, dash, last = versions.partition("-")
    if first.endswith("+"):
        return version >= int(first[:-1])
    return int(first) <= version <= int(last if dash else first)


def definitions(version: str = KAFKA_VERSION) -> Iterator[dict[str, Any]]:
    """Yield the JSON schema of each request and response from the jar of this Kafka version."""
    (jar,) = jar_folder(version).glob("kafka-clients-*.jar")
    with ZipFile(jar) as files:
        for name in files.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                text = files.read(name).decode()
                yield json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def module_text(message: Message) -> str:
    """Return the Python source of the module for one message."""
    classes = list(message.classes())
    used = set(re.findall(r"\w+", "\n".join(classes)))
    lines = [
        f"# Made by tests/wire/added_schemas.py from {message.definition['name']}.json of",
        f"# Apache Kafka {KAFKA_VERSION}.",
        "from dataclasses import dataclass, field",
        "from datetime import timedelta" if "timedelta" in used else "",
        "from uuid import UUID" if "UUID" in used else "",
        "",
        "from kio.schema.errors import ErrorCode" if "ErrorCode" in used else "",
    ]
    primitives = sorted(used & {*TYPES.values(), "i32Timedelta", "i64Timedelta"} - {"bool"})
    kios = [name for name in primitives if name not in ("str", "bytes", "UUID")]
    lines += [f"from kio.static.primitive import {', '.join(kios)}"] if kios else []
    lines += ["", "from . import Flexible"] if message.flexible else []
    return "\n".join((*lines, "", "", "\n\n\n".join(classes), ""))


def modules() -> dict[str, str]:
    """Return the Python source of each module, by its file name."""
    known = {each["name"]: each for each in definitions()}
    found = {}
    for api_key, version in sorted(ADDED):
        api = APIS[api_key]
        for way in ("Request", "Response"):
            message = Message(known[f"{api.name}{way}"], api_key, version)
            found[f"{api.module}_v{version}_{message.direction}.py"] = module_text(message)
    return found


if __name__ == "__main__":
    for name, text in modules().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
