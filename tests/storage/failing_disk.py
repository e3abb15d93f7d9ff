"""A replacement of functions of `os` that fail from a chosen call on."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class FailingDisk:
    """Let calls of the functions `names` of `os` raise an OSError with the errno `number`.

    The first `fail_at` calls succeed, the next `lasts` calls fail, and later calls succeed again.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: str, number: int) -> None:
        self.calls, self.fail_at, self.lasts = 0, -1, 1
        self._number = number
        self.counts: Callable[..., bool] = lambda *_: True  # by the arguments of a call
        for name in names.split():
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            self.calls += self.counts(*args)
            if 0 <= self.fail_at < self.calls <= self.fail_at + self.lasts and self.counts(*args):
                raise OSError(self._number, os.strerror(self._number))
            return real(*args, **keywords)

        return call

    @contextmanager
    def failing(self, at: int, lasts: int = 1) -> Iterator[None]:
        self.calls, self.fail_at, self.lasts = 0, at, lasts
        try:
            yield
        finally:
            self.fail_at = -1
