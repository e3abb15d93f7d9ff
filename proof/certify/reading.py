"""The second reading of a recipe, in which another person compares the program with its docs.

A reading concerns one state of the files, which their digest identifies. Two parts of it are done
by a program. The recipe's program must contain the settings that the text `mode` of the recipe
names, and a run must send the requests that the recipe lists for this mode.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, cast

SETTING = re.compile(r"\b([A-Za-z_][\w.]*)=\"?([\w.-]+)\"?")
DEFAULTS = "defaults"  # a mode that begins so sets nothing


@dataclass(frozen=True, slots=True)
class SecondReading:
    """The result of a second reading.

    on: the day. agrees: the program is what a user writes from the documentation. note: the
    differences that were found.
    """

    on: str
    digest: str
    agrees: bool
    note: str


def reading_of(given: object) -> SecondReading | None:
    """Return the second reading in a table of expected.toml, or None without it.

    Raises ValueError, which says why, for an invalid table.
    """
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("second_reading is a table of on, digest, agrees and note")
    table = cast("Mapping[str, Any]", given)
    on, agrees = table.get("on"), table.get("agrees")
    if not isinstance(on, date):
        raise ValueError("on of [second_reading] is a day, as 2026-11-29")
    if not isinstance(agrees, bool):
        raise ValueError("agrees of [second_reading] is true or false")
    texts = [table.get(key) for key in ("digest", "note")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("digest and note of [second_reading] are texts")
    return SecondReading(on.isoformat(), str(texts[0]), agrees, str(texts[1]).strip())


def settings_not_made(mode: str, texts: Iterable[str]) -> list[str]:
    """Return the settings in the mode whose values are missing in the texts of the program.

    A value may be in a file, a command or a variable of the program.
    """
    if mode.startswith(DEFAULTS):
        return []
    made = _plain("\n".join(texts))
    return [
        found[0]
        for found in SETTING.finditer(mode)
        if _plain(found[2].rpartition(".")[2]) not in made
    ]


def requests_not_sent(uses: Collection[str], apis: Collection[str]) -> list[str]:
    """Return the requests that the recipe's mode needs and the program has not sent."""
    return [name for name in uses if name not in apis]


def _plain(text: str) -> str:
    return text.lower().replace("-", "_")
