"""`ssl.principal.mapping.rules`, which map the subject of a certificate to a principal's name.

Rules are tried in order, and the first with a pattern that matches the whole subject is used.
`DEFAULT` keeps the subject. `RULE:pattern/replacement/` replaces the subject, where `$1` stands for
a group. `L` or `U` after the last slash changes the result to lower or upper case (KIP-371).

Patterns are RE2's (docs/decisions/0016-re2-for-patterns.md), because they are applied on the event
loop to a client's subject. Java's lookaround and back references are refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re2

NAME_MAX = 2_048  # the maximum length of a subject; a longer one matches no rule
PATTERN_MEMORY_BYTES = 512 * 1024
_RULE = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\n|$)"
)
_GROUP = re.compile(r"\$(\d)")
_CASES = {"": str, "L": str.lower, "U": str.upper}


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    """A rule that maps a matching subject to a name. Without a `pattern` it keeps each subject."""

    pattern: "re2._Regexp | None" = None  # pyright: ignore[reportPrivateUsage]
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return the new name, or None if the pattern does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        return _CASES[self.case](
            _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement)
        )


def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Parse the rules of a text, and raise ValueError that names an invalid part."""
    return tuple(_rules(text.strip() or "DEFAULT"))


def _rules(text: str) -> Iterator[PrincipalRule]:
    at = 0
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(f"not a rule such as RULE:^CN=(.*?),.*$/$1/L: {text[at:]}")
        is_default, pattern, replacement, case = found.groups()
        if is_default:
            yield PrincipalRule()
        else:
            yield _rule(pattern, replacement, case)
        at = found.end()


def _rule(pattern: str, replacement: str, case: str) -> PrincipalRule:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"{pattern} is no regular expression of RE2: {said}") from None
    for group in _GROUP.finditer(replacement):
        if int(group[1]) > compiled.groups:
            raise ValueError(f"{pattern} has no group {group[0]}")
    return PrincipalRule(compiled, replacement, case)


def mapped_name(rules: Sequence[PrincipalRule], name: str) -> str | None:
    """Return the name of the principal by the first rule that matches the subject `name`.

    Returns None if no rule matches, or if the subject has more than NAME_MAX characters.
    """
    if len(name) > NAME_MAX:
        return None
    return next((new for rule in rules if (new := rule.apply(name)) is not None), None)
