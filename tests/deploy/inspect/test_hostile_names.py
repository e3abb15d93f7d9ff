"""Test that explanations of transactions and groups with hostile names are printable."""

import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.client.groups.descriptions import GroupDescription, MemberDescription
from oncelog.deploy.inspect.explain import (
    NO_TIMEOUT_MS,
    Explanation,
    GroupFacts,
    PartitionTransaction,
    explain,
    why,
)

from .test_explain import CLEAN, KEY, NOW_MS, ONGOING, PRODUCER

NAMES = (
    "x; touch PWNED; true",
    "$(touch PWNED)",
    "t\x1b]0;OWNED\x07\x1b[2J\n  to end it    touch PWNED",
    "--prefix=a",
    "a'b\\\u202egnp",
)
STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "Empty")


def explanations(name: str) -> list[Explanation]:
    """Return explanations of each state in STATES, with `name` in client-chosen fields."""
    found: list[Explanation] = []
    for state, timeout_ms in itertools.product(STATES, (95_000, NO_TIMEOUT_MS)):
        known = replace(ONGOING, transactional_id=name, state=state, timeout_ms=timeout_ms)
        found.append(explain(known, now_ms=NOW_MS, leaderless=[KEY]))
        holders = (PartitionTransaction(PRODUCER, known), PartitionTransaction(PRODUCER, None))
        member = MemberDescription(name, name, client_id=name, host=name, partitions=(KEY,))
        group = GroupFacts(
            name=name,
            described=GroupDescription(
                group_id=name, state="Stable", protocol_type=name, protocol=name, coordinator=1,
                members=(member,),
            ),
            committed=3,
            is_unstable=True,
            holders=tuple((("__consumer_offsets", 0), holder) for holder in holders),
        )  # fmt: skip
        for held in (holders, holders[::-1], holders[1:]):
            found.append(why(replace(CLEAN, last_stable=200, holders=held, group=group)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_explanation_with_names_chosen_by_a_hostile_client_is_printable(name: str) -> None:
    for explanation in explanations(name):
        lines = explanation.in_words().split("\n")
        assert len(lines) == 1 + len(explanation.lines)
        assert all(map(str.isprintable, lines))


@pytest.mark.parametrize("name", NAMES)
def test_advised_command_with_a_hostile_name_runs_no_other_command_when_pasted(
    name: str, tmp_path: Path
) -> None:
    words = {line for each in explanations(name) for line in each.in_words().split("\n")}
    commands = {
        line[line.index("oncelog ") :].partition("   (")[0]
        for line in words
        if line.startswith("  to end it")
    }
    assert len(commands) == 2  # by its id, by its marker
    for command in commands:
        script = f"oncelog() {{ printf '%s\\0' \"$@\"; }}\n{command}"
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        last = done.stdout.split("\0")[-2]
        assert last == (str(PRODUCER.producer_id) if "--producer-id" in command else name)
    assert list(tmp_path.iterdir()) == []
