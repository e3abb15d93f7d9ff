"""Test that a command in a hint, pasted into a shell, runs nothing but that command."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncelog.cli.common import ClusterOptions
from oncelog.deploy.cluster.advice import one_command, shell_command

NAMES = (
    "x; touch PWNED; true",
    "$(touch PWNED)",
    "`touch PWNED`",
    "x' ; touch PWNED ; '",
    "t\x1b[2J\n touch PWNED\n",
    "a\\'b!c\x7f'; touch PWNED",
    "--prefix=a",
    "",
    "größer 東京",
    "\u202egnp.exe; touch PWNED",
)


def pasted(command: str, directory: Path) -> list[str]:
    """Return the arguments with which bash calls `oncelog` when the command is pasted."""
    script = f"oncelog() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=directory, capture_output=True, text=True, check=True
    )
    assert list(directory.iterdir()) == []
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_pasted_command_with_a_hostile_name_passes_the_name_as_one_word(
    name: str, tmp_path: Path
) -> None:
    command = shell_command("txn abort", name)
    assert command.isprintable()
    words = pasted(command, tmp_path)
    assert words[:2] == ["txn", "abort"]
    assert words[2:] == (["--", name] if name.startswith("-") else [name])


@pytest.mark.parametrize("name", NAMES)
def test_pasted_command_with_an_option_passes_the_option_unchanged(
    name: str, tmp_path: Path
) -> None:
    words = pasted(shell_command("txn abort", group_id=name, left_out=None), tmp_path)
    assert "=".join(words[2:]) == f"--group-id={name}"


@given(name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example(name="'\n'")
def test_advised_command_with_a_hostile_name_is_printable(name: str) -> None:
    assert shell_command("txn abort", name).isprintable()


def test_advised_command_names_the_cluster_like_the_typed_command() -> None:
    with one_command():
        advise()
    assert shell_command("why", "t/0") == "oncelog why t/0"


def advise() -> None:
    ClusterOptions(bootstrap="h:1,h:2", data=Path("my data")).client_config()
    named = "oncelog txn abort app-1 --bootstrap h:1,h:2 --data 'my data'"
    assert shell_command("txn abort", "app-1") == named
    assert shell_command("start", 1) == "oncelog start 1 --data 'my data'"
    assert shell_command("chaos replay", "run") == "oncelog chaos replay run"
    ClusterOptions(bootstrap="h:1").client_config()
    assert shell_command("start", 1) == "oncelog start 1"
    assert shell_command("why", "t/0", bootstrap="i:2") == "oncelog why t/0 --bootstrap i:2"
