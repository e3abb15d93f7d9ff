"""Calls that run within C, for the operations of every batch.

Code that does not run for every batch uses named fields and ordinary properties instead.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

Made = TypeVar("Made")


class _NewTuple(Protocol):
    def __call__(self, cls: type[Made], values: Iterable[Any], /) -> Made: ...


# Creates a NamedTuple from all its fields in order, including those with defaults.
new_tuple = cast(_NewTuple, cast(Any, tuple).__new__)


def attribute_of(path: str, assign: Callable[[Any, Any], None] | None = None) -> Any:
    """Return a property for a nested attribute, with a path such as "local.log_end_offset".

    assign: the setter of the property. Without it the property is read-only.
    """
    return property(attrgetter(path), assign)
