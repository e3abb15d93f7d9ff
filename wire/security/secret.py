"""A secret value, such as a password, a key, or a token."""

from typing import Any

HIDDEN = "[hidden]"


class Secret:
    """A text that `str` and `repr` hide, like a value of Kafka's config type PASSWORD.

    A secret can be compared, hashed and pickled, so a configuration remains a plain value. Code
    that needs the text calls `reveal()`.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return HIDDEN

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._text,)


EMPTY = Secret("")
