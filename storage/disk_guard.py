"""Errors of the disk, in the words of the protocol; and a log that is not trusted after one."""

import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from ..wire.errors import KafkaError, KafkaStorageError


@contextmanager
def disk_errors(name: str) -> Generator[None, None, None]:
    """Turn an OSError inside into KafkaStorageError; for what may simply be tried again."""
    try:
        yield
    except OSError as problem:
        raise KafkaStorageError(f"{name}: {problem}") from problem


# What the machine lacks now and may have later. It says nothing about what lies on the disk.
OUT_OF_RESOURCES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class DiskGuard:
    """`with guard:` turns an OSError inside into KafkaStorageError, and remembers it.

    After the first failure entering raises at once: what lies on the disk may differ from what
    is in memory, and only a restart with its recovery can tell. So it guards one log, never what
    many logs share (`disk_errors`). `on_failure` is called once, by whatever thread met it.

    `with guard.retriable:` is for what changes nothing in memory when it fails: there a disk that
    is full, or too many open files, are an error of this one attempt.

    What runs for every batch does the same by `check`, and `met` or `met_retriable` of an OSError:
    three blocks of `with` would cost an append more steps than its write.
    """

    __slots__ = ("_name", "failure", "on_failure")

    def __init__(self, name: str) -> None:
        self._name = name
        self.failure: OSError | None = None
        self.on_failure: Callable[[], object] = lambda: None

    @property
    def retriable(self) -> "_Retriable":
        return _Retriable(self)

    def check(self) -> None:
        """Raise KafkaStorageError if the disk has failed."""
        if self.failure is not None:
            raise self.error(self.failure)

    __enter__ = check

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, OSError):
            self.met(problem)

    def met(self, problem: OSError) -> NoReturn:
        """Trust the disk no longer; raises KafkaStorageError."""
        is_first = self.failure is None
        self.failure = problem
        if is_first:
            self.on_failure()
        raise self.error(problem) from problem

    def met_retriable(self, problem: OSError) -> NoReturn:
        """The same, unless the machine may have later what it lacks now."""
        if problem.errno in OUT_OF_RESOURCES:
            raise self.error(problem) from problem
        self.met(problem)

    def error(self, problem: Exception) -> KafkaError:
        """What to tell a client."""
        return KafkaStorageError(f"The log of {self._name} failed on disk: {problem}")


class _Retriable:
    __slots__ = ("_guard",)

    def __init__(self, guard: DiskGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard.check()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, OSError):
            self._guard.met_retriable(problem)
