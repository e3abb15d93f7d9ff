"""Parser of a `client.properties` in the format of Java's tools, for `--command-config`.

The file does no I/O. The format is that of java.util.Properties. A line is `key=value`, `key:
value` or `key value`. Comments begin with # or !. A backslash at the end of a line continues the
line, and a backslash before a letter works as in Java. Unknown names are treated in two ways. A
mistyped `ssl.` or `sasl.` setting is refused, since the connection would be less safe than
intended. Settings of other clients are ignored.
"""

import difflib
import re
from collections.abc import Iterable

_PART = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)", re.DOTALL)
_END_OF_LINE = re.compile(r"\r\n|\r|\n")  # Python knows more line ends
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
GUARDED = ("ssl.", "sasl.", "security.", "https.", "enable.ssl.")
# Of Java's clients: the times of logins, and parts of its TLS. This client is safe without them.
HARMLESS = (
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.",
    "ssl.trustmanager.",
    "ssl.secure.random.",
)


def parse_properties(text: str) -> dict[str, str]:
    """Return the names and values in the text. The last value of a repeated name counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        at = 0
        while at < len(line) and line[at] not in "=: \t\f":
            at += 2 if line[at] == "\\" else 1
        name, rest = line[:at], line[at:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        found[_unescaped(name)] = _unescaped(rest)
    return found


def _logical_lines(text: str) -> Iterable[str]:
    """Yield lines, without comments and blank lines, with continued lines joined."""
    pending = ""
    is_continued = False
    for raw in _END_OF_LINE.split(text.removeprefix("\ufeff")):
        line = raw.lstrip(" \t\f")
        if not is_continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        pending += line[:-1] if is_continued else line
        if not is_continued:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    def plain(found: "re.Match[str]") -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        return _ESCAPES.get(found[2], found[2])

    # Java writes characters above 16 bits as two escapes.
    return (
        _PART.sub(plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    )


def known_settings(
    given: dict[str, str], known: Iterable[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the known settings, and the names of unused settings.

    Raises ValueError for an unknown name with a prefix of security settings.
    """
    names = set(known)
    unused: list[str] = []
    for name in given:
        if name in names:
            continue
        if name.startswith(GUARDED) and not name.startswith(HARMLESS):
            near = difflib.get_close_matches(name, names, 1)
            raise ValueError(
                f"{name} is not honoured by this client{f'; is {near[0]} meant?' if near else ''}"
            )
        unused.append(name)
    return {name: given[name] for name in given if name in names}, tuple(unused)
