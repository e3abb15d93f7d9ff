"""Conversion from JSON to values for an Avro encoder, the reverse of `consume --decode avro`.

The file does no I/O. JSON has neither bytes nor dates, so they are text, with bytes in base64,
dates and times in ISO 8601, and decimals as digits. A union's value is converted by the first
branch that fits. JSON may name another branch as in Avro's own JSON encoding, such as
`{"long": 7}`.
"""

import base64
import binascii
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from fastavro.repository import AbstractSchemaRepository, SchemaRepositoryError
from fastavro.schema import load_schema

REFERENCES_MAX = 1_000
ROOT = ""  # the name of a schema among those that it refers to
AS_TEXT: dict[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
}


class AvroSchema:
    """An Avro schema that converts JSON data to values for the encoder.

    referred: a function that returns the registry's schema for a reference.
    """

    def __init__(self, schema: Any, referred: Callable[[Any], Any]) -> None:
        self._named: dict[str, Any] = {}
        every = _Schemas(schema, referred)
        self.parsed: Any = load_schema(ROOT, repo=every, named_schemas=self._named)

    def value(self, content: Any) -> Any:
        """Convert parsed JSON. Raises ValueError with the reason if it does not fit the schema."""
        return self._value(self.parsed, content, "it")

    def _value(self, schema: Any, content: Any, path: str) -> Any:
        if isinstance(schema, str):
            schema = self._named.get(schema, schema)
        if isinstance(schema, str):
            return _plain({"type": schema}, content, path)
        if isinstance(schema, list):
            return self._of_union(schema, content, path)
        match kind := schema["type"]:
            case "record" | "error":
                return self._of_record(schema, content, path)
            case "array" if isinstance(content, list):
                items = schema["items"]
                return [self._value(items, e, f"{path}[{i}]") for i, e in enumerate(content)]
            case "map" if isinstance(content, dict):
                values = schema["values"]
                return {k: self._value(values, e, f"{path}.{k}") for k, e in content.items()}
            case str():
                return _plain(schema, content, path)
        return self._value(kind, content, path)

    def _of_record(self, schema: Any, content: Any, path: str) -> dict[str, Any]:
        if not isinstance(content, dict):
            raise ValueError(f"{path} is no object, which {schema['name']} is")
        types = {field["name"]: field["type"] for field in schema["fields"]}
        if unknown := sorted(set(content) - set(types)):
            raise ValueError(f"{path} has a field {unknown[0]!r}, which {schema['name']} has not")
        for field in schema["fields"]:
            if field["name"] not in content and "default" not in field:
                raise ValueError(f"{path} lacks the field {field['name']!r} of {schema['name']}")
        return {name: self._value(types[name], e, f"{path}.{name}") for name, e in content.items()}

    def _of_union(self, schema: list[Any], content: Any, path: str) -> Any:
        if isinstance(content, dict) and len(content) == 1:
            ((name, inner),) = content.items()
            for branch in schema:
                if _name_of(branch) == name:
                    return name, self._value(branch, inner, path)
        for branch in schema:
            with suppress(ValueError):
                return _name_of(branch), self._value(branch, content, path)
        names = ", ".join(_name_of(branch) for branch in schema)
        raise ValueError(f"{path} is none of {names}")


def _name_of(branch: Any) -> str:
    if isinstance(branch, str):
        return branch
    return branch.get("name") or branch["type"]


def _plain(schema: Any, content: Any, path: str) -> Any:
    """Return the value for a primitive, fixed, enum or logical type.

    Raises ValueError with `path`, the place in the JSON, if `content` does not fit the type.
    """
    kind, logical = schema["type"], schema.get("logicalType")
    value = content
    if isinstance(content, str):
        try:
            if logical in AS_TEXT:
                return AS_TEXT[logical](content)
            if kind in ("bytes", "fixed"):
                value = base64.b64decode(content, validate=True)
        except binascii.Error:
            raise ValueError(f"{path} is not in base64: {content!r}") from None
        except (ValueError, InvalidOperation):
            raise ValueError(f"{path} is no {logical}: {content!r}") from None
    if not _fits(schema, kind, value):
        raise ValueError(f"{path} is no {kind}: {content!r}")
    return value


def _fits(schema: Any, kind: str, value: Any) -> bool:
    match kind:
        case "null":
            return value is None
        case "int" | "long":
            half = 2 ** (31 if kind == "int" else 63)
            return type(value) is int and -half <= value < half
        case "enum":
            return value in schema["symbols"]
        case "fixed":
            return isinstance(value, bytes) and len(value) == schema["size"]
        case "float" | "double":
            return type(value) in (int, float)
    return isinstance(value, {"boolean": bool, "string": str, "bytes": bytes}.get(kind, ()))


class _Schemas(AbstractSchemaRepository):
    """A schema and all schemas to which it refers, by their names."""

    def __init__(self, schema: Any, referred: Callable[[Any], Any]) -> None:
        self._texts: dict[str, str] = {ROOT: schema.schema_str}
        waiting = list(schema.references or ())
        while waiting:
            reference = waiting.pop()
            if reference.name in self._texts:
                continue
            if len(self._texts) > REFERENCES_MAX:
                raise ValueError(f"it refers to more than {REFERENCES_MAX} schemas")
            found = referred(reference)
            self._texts[reference.name] = found.schema_str
            waiting += found.references or ()

    def load(self, name: str) -> Any:
        """Return a schema by its name."""
        try:
            return json.loads(self._texts[name])
        except KeyError:
            raise SchemaRepositoryError(f"it refers to no {name}") from None
