"""Test that commands print through `tell`, `say` and `show`, which escape client text."""

import ast

import pytest

from .test_floors import FILES, ROOT, name, parsed

pytestmark = pytest.mark.xdist_group("tidy")  # one worker, so that files are parsed once
COMMANDS = [file for file in FILES if file.is_relative_to(ROOT / "cli")]
SAFE = {"dumps", "printable"}


def bare_prints(tree: ast.AST) -> list[int]:
    """Return the lines with a `print` or `write` of a value that is not escaped."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            getattr(node.func, "id", "") == "print"
            or ast.unparse(node.func) in ("sys.stdout.write", "sys.stderr.write")
        )
        and not all(
            isinstance(argument, ast.Call)
            and getattr(argument.func, "attr", getattr(argument.func, "id", "")) in SAFE
            for argument in node.args
        )
    ]


def test_command_code_has_no_bare_print_of_a_value() -> None:
    found = {name(file): lines for file in COMMANDS if (lines := bare_prints(parsed(file)))}
    assert found == {}


@pytest.mark.parametrize("source", ["print(f'{group}')", "sys.stdout.write(text)"])
def test_print_check_reports_a_bare_print(source: str) -> None:
    assert bare_prints(ast.parse(source)) == [1]


@pytest.mark.parametrize("source", ["print(json.dumps(rows))", "print(printable(text))"])
def test_print_check_ignores_a_safe_print(source: str) -> None:
    assert not bare_prints(ast.parse(source))
