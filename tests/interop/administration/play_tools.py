"""Run the commands of Kafka's tools on one cluster, and make their output comparable."""

import json
import re
import time
from pathlib import Path
from typing import NamedTuple

from .more_tool_commands import ALL
from .tool_commands import Command
from .tool_sessions import Outcome, ToolSessions

REPEATED_S = 30.0
BEGUN_S = 1.0
_TOPIC = "assigned"

# Output that depends on the machine and the moment: ids, addresses, times.
_PASSING = (
    # One with five digits has as many characters as an id, one with four has not.
    (re.compile(r"console-consumer-\d+"), "A CONSOLE CONSUMER"),
    (re.compile(r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w(-])"), "ID"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?"), "HOST"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:]\d+"), "TIME"),
    (re.compile(r"\b1[78]\d{11}\b"), "TIME"),
    (re.compile(r"(/[\w.-]+){2,}"), "PATH"),
)
_FIGURE = re.compile(r"-?\d+(\.\d+)?([eE]-?\d+)?")
_KEY_OF_RECORD = re.compile(r'\{"key":(.*?\}\}),"value"')
# Repeated objects; there is one for each partition or group.
_REPEATED = re.compile(r"(\{[^{}]*\})(,?\1)+")
# A tool that catches its own end prints that; log lines name classes and threads;
# a newer member may first be assigned no partitions.
_LEFT_OUT = re.compile(
    r"TIME|\[TIME|at \S+\(|\.\.\. \w+ more|ToolSessions\$|Processed a total|"
    r"\[.*\] (WARN|INFO|ERROR) |.*\"partitions_assigned\",\"partitions\":\[\]"
)


class Played(NamedTuple):
    """The exit code of a command, its comparable output lines, and its unchanged output."""

    code: str
    lines: frozenset[str]
    text: str


def play(bootstrap: str, folder: Path) -> dict[str, Played]:
    """Run all commands, and return the result of each command by its name."""
    _write_files(folder)
    known = {"bootstrap": bootstrap, "folder": str(folder)}
    played: dict[str, Played] = {}
    with ToolSessions(folder) as sessions:
        for command in ALL:
            outcome = _run(sessions, command, known)
            if outcome is None:
                continue
            name, expression = command.takes
            if name:
                found = re.search(expression, outcome.out)
                assert found, f"{command.name}: {outcome}"
                known[name] = found[1]
            if command.name == "consumer-groups export":
                (folder / "offsets.csv").write_text(outcome.out)
            played[command.name] = comparable(command, outcome)
    return played


def _run(sessions: ToolSessions, command: Command, known: dict[str, str]) -> Outcome | None:
    arguments = (command.server + command.arguments).format(**known).split()
    name, tool, seconds = command.name, command.tool, command.seconds
    if command.begins:
        sessions.begin(name, tool, arguments)
        return None
    if command.ends:
        return sessions.end(name, seconds=seconds)
    deadline = time.monotonic() + REPEATED_S
    while True:
        outcome = sessions.run(name, tool, arguments, text=command.text, seconds=seconds)
        if re.search(command.until, outcome.out, re.DOTALL) or time.monotonic() > deadline:
            return outcome


def comparable(command: Command, outcome: Outcome) -> Played:
    text = f"{outcome.out}\n{outcome.err}"
    if command.name.startswith("formatter"):  # the keys only, because some records appear twice
        text = "\n".join(_KEY_OF_RECORD.findall(text))
    lines: set[str] = set()
    for line in map(str.strip, text.splitlines()):
        for form, word in command.forms:
            line = re.sub(form, word, line)
        for expression, word in _PASSING:
            line = expression.sub(word, line)
        if not command.is_exact:
            line = _FIGURE.sub("N", line)
        line = _REPEATED.sub(r"\1", " ".join(line.split()))
        if line and not _LEFT_OUT.match(line):
            lines.add(line)
    return Played(outcome.code, frozenset(lines), text)


def _write_files(folder: Path) -> None:
    def move(replicas: list[list[int]], topic: str = _TOPIC) -> object:
        return {
            "version": 1,
            "partitions": [
                {"topic": topic, "partition": index, "replicas": each}
                for index, each in enumerate(replicas)
            ],
        }

    def records(offset: int) -> object:
        where = {"topic": _TOPIC, "partition": 0, "offset": offset}
        return {"version": 1, "partitions": [where]}

    files = {
        "topics": {"version": 1, "topics": [{"topic": _TOPIC}]},
        "move": move([[2, 3], [3, 1], [1, 2]]),
        "shrink": move([[2], [3], [1]]),
        "nowhere": move([[77]]),
        "nothing": move([[1]], "nope"),
        "records": records(0),
        "beyond": records(99),
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "client.properties").write_text("client.id=tools\n")
