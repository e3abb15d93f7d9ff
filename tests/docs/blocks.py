"""The code blocks of docs pages, and the comparison of real output with the output in a block."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
PROMPT = "$ "
ELISION = "..."
REMARK = re.compile(r" {3,}\S.*$")


@dataclass(frozen=True)
class Step:
    """A command and the output lines that a page shows for it."""

    command: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    page: str
    text: str

    def steps(self) -> list[Step]:
        """Return the commands of a block, each with the output that the block shows for it.

        A remark, which is text after three spaces and a `#`, is no part of a command.
        """
        lines = self.text.splitlines()
        has_prompts = any(line.startswith(PROMPT) for line in lines)
        found: list[tuple[str, list[str]]] = []
        for line in lines:
            if has_prompts and not line.startswith(PROMPT):
                found[-1][1].append(line)
            else:
                found.append((REMARK.sub("", line.removeprefix(PROMPT)), []))
        return [Step(command, tuple(shown)) for command, shown in found]


@cache
def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(page, body) for body in found]


def block(page: str, has: str, instead: Mapping[str, str] | None = None) -> Block:
    """Return the one block of a page that contains the text `has`.

    instead: replacements for texts of the block that a test cannot run unchanged.
    """
    (found,) = [each for each in blocks_of(page) if has in each.text]
    text = found.text
    for old, new in (instead or {}).items():
        assert old in text, f"the block of {page} with {has!r} has no {old!r}"
        text = text.replace(old, new)
    return Block(page, text)


ZERO = re.compile(r"(?<![\d.,:])0(?= (lost|doubled|out of order|violations?|anomal|left|behind))")


def masked(line: str) -> str:
    """Return a line of output in which numbers, addresses and long ids are replaced by `#`.

    These differ from run to run. In "0 lost" and similar results, 0 becomes "no".
    """
    line = ZERO.sub("no", line)
    line = re.sub(r"\b[0-9a-f]{16,}\b", "#", line)
    line = re.sub(r"\d[\d.,:]*(?<=\d)|─+", "#", line)
    return " ".join(line.split())


def differences(shown: Sequence[str], seen: Sequence[str]) -> Iterator[str]:
    """Yield lines of `shown` that were not printed (-), and printed lines that are not in it (+).

    The order is ignored, since several processes write the lines. With a line `...` in `shown`, any
    other lines may be printed.
    """
    wanted = Counter(filter(None, map(masked, shown)))
    found = Counter(filter(None, map(masked, seen)))
    is_part = wanted.pop(ELISION, 0)
    yield from (f"- {line}" for line in wanted - found)
    if not is_part:
        yield from (f"+ {line}" for line in found - wanted)
