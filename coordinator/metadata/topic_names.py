"""The rules for topic names, as in Kafka, where the name is also a directory."""

import re

NAME_CHARS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def why_invalid(name: str) -> str | None:
    """Return the error in a topic name, in Kafka's words, or None for a valid name."""
    reason = ""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = "'.' or '..' is not allowed"
    elif len(name) > NAME_CHARS_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    elif not _LEGAL.match(name):
        reason = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    return f"Topic name is invalid: {reason}" if reason else None
