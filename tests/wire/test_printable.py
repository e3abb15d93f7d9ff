"""Test the escaping of text from clients for terminals and logs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.printable import printable


@pytest.mark.parametrize("text", ["orders", "größer", "東京\u3000都", "עברית", "a\u0301", "🙂"])
def test_printable_text_keeps_letters_symbols_and_spaces(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;OWNED\x07\x1b[2J", "\\x1b]0;OWNED\\x07\\x1b[2J"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b31m", "\\x9b31m"),  # CSI in one character
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("a\u2028b\u2029c\u200bd\ufeff", "a\\u2028b\\u2029c\\u200bd\\ufeff"),
        ("\U000e0041", "\\U000e0041"),  # a tag
        ("\ud800", "\\ud800"),
    ],
)
def test_printable_text_escapes_controls_formats_and_line_ends(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_text_keeps_the_characters_in_keep() -> None:
    assert printable("a\tb\nc\x1b", keep="\t\n") == "a\tb\nc\\x1b"


@given(st.text(st.characters()))
def test_printable_text_of_any_string_is_one_terminal_line(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()  # no surrogates
    assert printable(shown) == shown
