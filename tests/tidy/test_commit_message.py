"""Test the check of a commit message's subject, and of its body for large changes."""

import pytest

from .commit_message import problems


@pytest.mark.parametrize(
    ("message", "lines", "words"),
    [
        ("fetch: fix three bugs\n", 20, None),
        ("node/groups: confirm no member\n\nA reason.\n", 500, None),
        ("fetch: fix three bugs\n\n# a comment of git\n", 21, "say why"),
        ("Fix three bugs\n", 1, "area"),
        ("fetch: fix three bugs.\n", 1, "full stop"),
        ("fetch: " + "x" * 66 + "\n", 1, "73 characters"),
        ("fetch: fix\nat once\n", 1, "second line"),
        ("", 1, "area"),
        ("Merge branch 'a'\n", 900, None),
    ],
)
def test_commit_message_of_each_form_is_accepted_or_refused(
    message: str, lines: int, words: str | None
) -> None:
    found = problems(message, lines)
    assert bool(found) == (words is not None)
    assert words is None or words in found[0]
