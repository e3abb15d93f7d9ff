"""Test that commands, options and public names change only on purpose."""

import difflib

from .surface import RECORDED, surface


def test_public_commands_and_names_equal_the_recorded_surface() -> None:
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(recorded, surface().splitlines(), lineterm="", n=0))
    assert changes == [], "if that is meant: .venv/bin/python -m tests.tidy.surface"
