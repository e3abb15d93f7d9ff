"""Test that commands in messages are built by `shell_command`, which quotes each word."""

import ast
import re
from collections.abc import Iterator

import pytest

from oncelog.cli.main import build

from .test_floors import FILES, name, parsed

pytestmark = pytest.mark.xdist_group("tidy")  # one worker, so that files are parsed once
VERBS = "|".join(sorted(verb for verb in build() if not verb.startswith("-")))
COMMAND = re.compile(rf"\boncelog (?:{VERBS})\b")
END = re.compile(r"[\n`(,;]")  # of a command within a sentence
HOLE = "\0"
SEEDS = {"Random", "schedule"}  # functions that take such a text as a seed
TITLES = {"page"}


def template(node: ast.AST) -> str:
    """Return the text of a string expression, with a placeholder for each inserted value."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(template, values))
        case ast.FormattedValue(format_spec=ast.JoinedStr() as spec) if template(spec) == "d":
            return "1"  # a text is refused there
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return template(left).replace("%", HOLE)
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return template(value).replace("{", HOLE)
        case ast.Call(func=ast.Name(id="shell_command" | "shell_word")):
            return ""
        case _:
            return HOLE


def unquoted(tree: ast.AST) -> Iterator[str]:
    """Yield the string expressions that put an unquoted value into a command."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and called(node) in SEEDS | TITLES:
            continue
        text = template(node)
        found = COMMAND.search(text)
        if found and HOLE in END.split(text[found.end() :], maxsplit=1)[0]:
            yield text.replace(HOLE, "{...}")
        else:
            yield from unquoted(node)


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def test_commands_in_messages_quote_each_inserted_value() -> None:
    assert [f"{name(file)}: {text}" for file in FILES for text in unquoted(parsed(file))] == []


@pytest.mark.parametrize(
    "source",
    [
        'f"end it with: oncelog txn abort {name}"',
        'say("see " "oncelog why " + partition)',
        '"oncelog group delete %s" % group',
        '"oncelog group delete {}".format(group)',
    ],
)
def test_advice_check_reports_an_unquoted_name(source: str) -> None:
    assert list(unquoted(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "f\"end it with: {shell_command('txn abort', name)}\"",
        'f"oncelog start {node:d}"',
        'f"{name} runs: see oncelog ps"',
        'Random(f"oncelog chaos {seed}")',
    ],
)
def test_advice_check_ignores_a_quoted_name(source: str) -> None:
    assert not list(unquoted(ast.parse(source)))
