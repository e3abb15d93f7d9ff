"""Compare two answers field by field, with a list of the intended differences."""

from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from oncelog.wire.errors import ErrorCode

COMPARED: Counter[str] = Counter()  # counts for the report at the end of the test run
MISSING = "(not there)"


class Meant(NamedTuple):
    """An intended difference from Kafka, and its reason.

    All fields but the reason are patterns. `field` is the path in the answer, such as
    topics[0].error_code. `kafka` and `ours` are the values as text.
    """

    api: str
    case: str
    field: str
    reason: str
    kafka: str = "*"
    ours: str = "*"


class Difference(NamedTuple):
    api: str
    version: int
    case: str
    field: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        kafka, ours = _shown(self.field, self.kafka), _shown(self.field, self.ours)
        return f"{self.api} v{self.version} [{self.case}] {self.field}: Kafka {kafka}, ours {ours}"


class Comparison:
    """A comparison of answers that records which intended differences occurred."""

    def __init__(self, meant: tuple[Meant, ...]) -> None:
        self._meant = meant
        self.used: set[Meant] = set()

    def compare(self, api: str, version: int, case: str, kafka: Any, ours: Any) -> list[Difference]:
        """Return the unintended differences between two answers."""
        COMPARED["answers"] += 1
        found = []
        for field, theirs, mine in _walk("", kafka, ours):
            COMPARED["fields"] += 1
            if theirs == mine:
                continue
            difference = Difference(api, version, case, field, theirs, mine)
            excuse = self._excuse(difference)
            if excuse is None:
                found.append(difference)
            else:
                COMPARED["differences that are meant"] += 1
                self.used.add(excuse)
        return found

    def _excuse(self, found: Difference) -> Meant | None:
        values = (
            found.api,
            found.case,
            found.field,
            _shown(found.field, found.kafka),
            _shown(found.field, found.ours),
        )
        for meant in self._meant:
            patterns = (meant.api, meant.case, meant.field, meant.kafka, meant.ours)
            if all(map(_matches, values, patterns)):
                return meant
        return None


def _matches(text: str, pattern: str) -> bool:
    """Return whether a path matches a pattern in which brackets stand for themselves."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _walk(path: str, kafka: Any, ours: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        codes = kafka.get("error_code"), ours.get("error_code")
        if codes[0] != codes[1]:  # the other fields follow from the error code
            yield f"{path}.error_code".lstrip("."), *codes
            return
        for name in kafka.keys() | ours.keys():
            inner = f"{path}.{name}" if path else name
            yield from _walk(inner, kafka.get(name, MISSING), ours.get(name, MISSING))
    elif isinstance(kafka, list) and isinstance(ours, list):
        if not kafka and not ours:
            yield path, kafka, ours
        pairs = _paired(kafka, ours)
        for label, theirs, mine in pairs:
            yield from _walk(f"{path}[{label}]", theirs, mine)
    else:
        yield path, kafka, ours


def _paired(kafka: list[Any], ours: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield pairs of list items with equal names, or at equal positions if they have no names."""
    for key in ("name", "api_key", "resource_name"):
        left, right = _by(key, kafka), _by(key, ours)
        if left is not None and right is not None and (left or right):
            for name in left | right:
                yield str(name), left.get(name, MISSING), right.get(name, MISSING)
            return
    for place in range(max(len(kafka), len(ours))):
        theirs = kafka[place] if place < len(kafka) else MISSING
        mine = ours[place] if place < len(ours) else MISSING
        yield str(place), theirs, mine


def _by(key: str, items: list[Any]) -> dict[Any, Any] | None:
    if not all(isinstance(item, dict) and item.get(key) is not None for item in items):
        return None
    found = {item[key]: item for item in items}
    return found if len(found) == len(items) else None


def _shown(field: str, value: Any) -> str:
    if field.endswith("error_code") and isinstance(value, int):
        try:
            return ErrorCode(value).name
        except ValueError:
            return str(value)
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "..."
