"""Text from clients, made printable for a terminal, a log, or a table."""

import unicodedata

ESCAPED = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode's categories of what moves a cursor, ends a line or turns a text around."""


def printable(text: str, *, keep: str = "") -> str:
    """Return the text, with control, format and line characters escaped as in Python.

    Letters, symbols and spaces are not escaped, nor are the characters in `keep`.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or unicodedata.category(each) not in ESCAPED else _escaped(each)
        for each in text
    )


def _escaped(character: str) -> str:
    """Return the character in the form that it has in a Python string literal."""
    return character.encode("unicode_escape").decode("ascii")
