"""The translation of disk errors into Kafka's errors, and the failed state of a log."""

import errno
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

from ..wire.errors import KafkaError, KafkaStorageError


@contextmanager
def disk_errors(name: str) -> Generator[None, None, None]:
    """Turn an OSError into KafkaStorageError, for operations that may be retried."""
    try:
        yield
    except OSError as problem:
        raise KafkaStorageError(f"{name}: {problem}") from problem


# Shortages that may end, and that say nothing about the data on the disk.
OUT_OF_RESOURCES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class DiskGuard:
    """A context that turns an OSError into KafkaStorageError, and remembers the error.

    After the first failure, entering the context raises immediately. The disk may then differ from
    memory, and only the recovery after a restart finds the difference. Therefore a guard protects a
    single log, and nothing that several logs share (`disk_errors`). `on_failure` is called once, in
    the thread of the failure.

    `with guard.retriable:` is for operations that change nothing in memory when they fail. A full
    disk, or too many open files, then fail only this attempt.

    Code that runs for every batch calls `check`, and `met` or `met_retriable` for an OSError, since
    three `with` blocks would cost more than the write itself.
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
        """Raise KafkaStorageError if the log has failed."""
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
        """Mark the log as failed, and raise KafkaStorageError."""
        is_first = self.failure is None
        self.failure = problem
        if is_first:
            self.on_failure()
        raise self.error(problem) from problem

    def met_retriable(self, problem: OSError) -> NoReturn:
        """Raise KafkaStorageError, and mark the log as failed unless only resources are lacking."""
        if problem.errno in OUT_OF_RESOURCES:
            raise self.error(problem) from problem
        self.met(problem)

    def error(self, problem: Exception) -> KafkaError:
        """Return the KafkaError that a client gets for this problem."""
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
