"""The relation of outputs to inputs, by the id that the feeder gives and the application copies.

The file does no I/O. `--match` tells where an output has the id of its input. The choices are
`key`, `header:NAME`, `json:FIELD` (a field of the value, with dots for nested fields) and
`regex:RE` (a match in the value, or its first group).
"""

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...deploy.cluster.failure import Failure

ID_HEADER = "oncelog-id"
Matcher = Callable[["LogRecord"], str | None]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A committed record that was read from a topic. `producer_id` is -1 if it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False

    @property
    def place(self) -> str:
        """Return the position of the record, such as `orders/0@17`."""
        return f"{self.topic}/{self.partition}@{self.offset}"

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key == name and value is not None]
        return text_of(found[-1]) if found else None


def text_of(data: bytes | None) -> str | None:
    """Decode bytes, and escape bytes that are not text (such as a long from Java)."""
    return None if data is None else data.decode(errors="backslashreplace")


def matcher(how: str) -> Matcher:
    """Return the function for --match, which returns the input's id in an output, or None.

    Raises Failure for an unknown form.
    """
    kind, colon, rest = how.partition(":")
    if kind == "key" and not colon:
        return lambda record: text_of(record.key)
    if kind == "header" and rest:
        return lambda record: record.header(rest)
    if kind == "json" and rest:
        path = rest.split(".")
        return lambda record: _field(record.value, path)
    if kind == "regex" and rest:
        try:
            pattern = re.compile(rest)
        except re.error as problem:
            raise Failure(f"--match {how}: {problem}.", exit_code=2) from None
        return lambda record: _found(pattern, record.value)
    raise Failure(
        f"--match {how} does not say where an input's id is in an output. It is key, header:NAME, "
        "json:FIELD or regex:RE.",
        exit_code=2,
    )


def _field(value: bytes | None, path: Iterable[str]) -> str | None:
    try:
        found: Any = json.loads(value or b"")
    except ValueError:
        return None
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return None if found is None or isinstance(found, dict | list) else str(found)


def _found(pattern: re.Pattern[str], value: bytes | None) -> str | None:
    match = pattern.search(text_of(value) or "")
    return None if match is None else match[1] if pattern.groups else match[0]


# --- functions of the user: module:function


Expect = Callable[[list[LogRecord]], Iterable[str | bytes | tuple[str, str | bytes]]]
"""From all inputs to the ids that the outputs must have, each as often as it must occur; a pair
(topic, id) where it matters in which topic."""
Final = Callable[[list[LogRecord]], Mapping[Any, Any]]
"""From all inputs, each partition's in order, to the last value that each key of the output must
have; None: it has none."""


def function(option: str, text: str) -> Callable[..., Any]:
    """Import and return the function of `module:function`, also from the current directory.

    Any error of the module or of the function is raised as Failure.
    """
    name, _, attribute = text.partition(":")
    if not name or not attribute:
        raise Failure(f"{option} {text} names no function. Write module:function.", exit_code=2)
    added = "" if "" in sys.path else "."
    if added:
        sys.path.insert(0, added)
    try:
        found = getattr(importlib.import_module(name), attribute, None)
    except Exception as problem:  # any error of the module
        raise Failure(f"{option} {text}: {_described(problem)}.", exit_code=2) from problem
    finally:
        if added:
            sys.path.remove(added)
    if not callable(found):
        raise Failure(f"{option}: {name} has no function {attribute}.", exit_code=2)
    theirs: Callable[..., Any] = found

    def called(*arguments: Any) -> Any:
        try:
            made = theirs(*arguments)
            return list(made) if isinstance(made, Iterator) else made
        except Exception as problem:  # no verdict, and nothing that looks like one
            told = f"{option} {text} failed: {_described(problem)}."
            raise Failure(told, exit_code=2) from problem

    return called


def _described(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}".rstrip(".")
