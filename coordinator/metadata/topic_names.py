"""Which names a topic may have (Kafka's rules; the name is a folder on disk)."""

import re

NAME_CHARS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def why_invalid(name: str) -> str | None:
    """What is wrong with a topic name, as a sentence; None when nothing is."""
    if not name:
        return "A topic name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be named {name!r}."
    if len(name) > NAME_CHARS_MAX:
        return f"A topic name has {NAME_CHARS_MAX} characters at most, not {len(name)}."
    if not _LEGAL.match(name):
        return (
            f"The topic name {name!r} has characters other than ASCII letters and digits, "
            f"'.', '_' and '-'."
        )
    return None
