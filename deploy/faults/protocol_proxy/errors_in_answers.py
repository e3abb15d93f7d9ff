"""The errors that an answer tells, wherever it has room for them."""

from collections.abc import Iterator
from typing import Any

from .subjects import fields_of


def first_error(body: Any) -> int:
    """The first error code that is not 0, 0 if there is none."""
    return next(errors_in(body), 0)


def errors_in(body: Any) -> Iterator[int]:
    """All error codes that are not 0."""
    for name, value in fields_of(body):
        if name.endswith("error_code"):
            if value:
                yield value
        elif isinstance(value, list):
            for item in value:  # of numbers and texts there are no fields
                yield from errors_in(item)
