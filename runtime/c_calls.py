"""Calls that stay within C, for the operations that every batch repeats.

Elsewhere the fields of a tuple deserve their names, and a property its body.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

Made = TypeVar("Made")


class _NewTuple(Protocol):
    def __call__(self, cls: type[Made], values: Iterable[Any], /) -> Made: ...


# A NamedTuple from all its fields in their order, including those with defaults.
new_tuple = cast(_NewTuple, cast(Any, tuple).__new__)


def attribute_of(path: str, assign: Callable[[Any, Any], None] | None = None) -> Any:
    """Return a property that reads an attribute of an attribute, such as "local.log_end_offset"."""
    return property(attrgetter(path), assign)
