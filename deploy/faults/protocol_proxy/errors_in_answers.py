"""The errors of an answer, in all of its fields."""

from collections.abc import Iterator
from typing import Any

from .subjects import fields_of


def first_error(body: Any) -> int:
    """Return the first error code of an answer that is not 0, or 0 if there is none."""
    return next(errors_in(body), 0)


def errors_in(body: Any) -> Iterator[int]:
    """Yield all error codes of an answer that are not 0, including those of nested fields."""
    for name, value in fields_of(body):
        if name.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for item in value:  # numbers and texts have no fields
                yield from errors_in(item)
