"""What is done several times for every batch by one call of C, and not by a step of Python.

Elsewhere the fields of a tuple deserve their names, and a property its body.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

Made = TypeVar("Made")


class _NewTuple(Protocol):
    def __call__(self, cls: type[Made], values: Iterable[Any], /) -> Made: ...


# A NamedTuple of all its fields in their order, those with defaults, too.
new_tuple = cast(_NewTuple, cast(Any, tuple).__new__)


def attribute_of(path: str, assign: Callable[[Any, Any], None] | None = None) -> Any:
    """A property that reads an attribute of an attribute, as "local.log_end_offset"."""
    return property(attrgetter(path), assign)
