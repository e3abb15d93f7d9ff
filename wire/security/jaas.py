"""Decoding of `sasl.jaas.config` of Java's clients, with a login module and its options.

This file is pure. The format is that of JAAS files: `MODULE required name="value" name='value'
name=value;`. Within quotes a backslash works as in Java's StreamTokenizer. Up to three octal digits
are a character, some letters are control characters, and any other character stands for itself.
"""

import re

from .secret import Secret

_WORD = re.compile(r"[^\s=;\"']+")
_ESCAPED = re.compile(r"([0-3][0-7]{0,2}|[4-7][0-7]?)|(.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
FLAGS = ("required", "requisite", "sufficient", "optional")


def parse_jaas(config: Secret) -> tuple[str, dict[str, str]]:
    """Return (name of the login module's class without its package, options).

    Raises ValueError with a sentence that does not repeat the text, because the text may contain a
    password.
    """
    text = config.reveal().strip()
    module, at = _word(text, 0)
    flag, at = _word(text, _spaces(text, at))
    if not module or flag.lower() not in FLAGS:
        raise ValueError(
            'sasl.jaas.config begins like: org.apache.kafka...PlainLoginModule required username="'
        )
    options: dict[str, str] = {}
    while True:
        at = _spaces(text, at)
        if at >= len(text):
            raise ValueError("sasl.jaas.config has to end with a semicolon")
        if text[at] == ";":
            break
        name, at = _word(text, at)
        if not name or text[at : at + 1] != "=":
            raise ValueError(
                f"sasl.jaas.config: option {len(options) + 1} is not of the form name=value"
            )
        options[name], at = _value(text, at + 1, name)
    if text[at + 1 :].strip():
        raise ValueError("sasl.jaas.config names one module, and nothing after its semicolon")
    return module.rpartition(".")[2], options


def _spaces(text: str, at: int) -> int:
    return len(text) - len(text[at:].lstrip())


def _word(text: str, at: int) -> tuple[str, int]:
    found = _WORD.match(text, at)
    return (found.group(), found.end()) if found else ("", at)


def _value(text: str, at: int, name: str) -> tuple[str, int]:
    quote = text[at : at + 1]
    if quote not in ('"', "'") or not quote:
        value, end = _word(text, at)
        if not value:
            raise ValueError(f"sasl.jaas.config: {name} has no value")
        return value, end
    characters: list[str] = []
    at += 1
    while at < len(text):
        character = text[at]
        if character == quote:
            return "".join(characters), at + 1
        at += 1
        if character == "\\" and (escaped := _ESCAPED.match(text, at)):
            octal, other = escaped.groups()
            character = _CONTROLS.get(other, other) if octal is None else chr(int(octal, 8))
            at = escaped.end()
        characters.append(character)
    raise ValueError(f"sasl.jaas.config: the value of {name} is not closed by a quote")
