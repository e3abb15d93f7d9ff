"""Test the groups of commands in the help, the completion, and the help text of each option."""

import subprocess
from shutil import which

import pytest
from cyclopts import App

from oncelog.cli.main import GROUPS, build, run


def test_command_help_lists_each_command_in_exactly_one_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    verbs = [verb for group in GROUPS.values() for verb in group]
    assert sorted(verbs) == sorted(verb for verb in build() if not verb.startswith("-"))
    assert run(["help"]) == 0
    told = capsys.readouterr().out
    assert all(title in told for title in GROUPS)
    assert run(["help", "topic", "alter"]) == 0
    assert "--unset" in capsys.readouterr().out


def undescribed(app: App, path: tuple[str, ...] = ()) -> list[str]:
    """Return the options that have no text in the help."""
    found: list[str] = []
    for name in app:
        inner = app[name]
        if name.startswith("-"):
            continue
        if inner.default_command is None:
            found += undescribed(inner, (*path, name))
            continue
        for argument in inner.assemble_argument_collection():
            if argument.show and argument.name.startswith("-") and not argument.parameter.help:
                found.append(" ".join((*path, name, argument.name)))
    return found


def test_every_option_of_the_command_line_has_a_help_text() -> None:
    assert undescribed(build()) == []


@pytest.mark.in_turn
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid_in_its_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "oncelog" in script and "--isolation" in script and "transactional-id" in script
    if which(shell):
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.in_turn
@pytest.mark.skipif(not which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"), [("oncelog top", "topic"), ("oncelog consume t --iso", "--isolation")]
)
def test_completion_in_bash_suggests_the_expected_word(
    line: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["completion", "bash"])
    words = line.split()
    script = (
        capsys.readouterr().out
        + f"""
COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; COMP_LINE="{line}"
COMP_POINT={len(line)}; _oncelog; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    )
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True)
    assert expected in done.stdout.split(), done.stderr
