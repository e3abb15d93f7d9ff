"""Errors of the disk, in the words of the protocol; and a log that is not trusted after one."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from ..wire.errors import KafkaError, KafkaStorageError


@contextmanager
def disk_errors(name: str) -> Iterator[None]:
    """Turn an OSError inside into KafkaStorageError; for what may simply be tried again."""
    try:
        yield
    except OSError as problem:
        raise KafkaStorageError(f"{name}: {problem}") from problem


class DiskGuard:
    """`with guard:` turns an OSError inside into KafkaStorageError, and remembers it.

    After the first failure entering raises at once: what lies on the disk may differ from what
    is in memory, and only a restart with its recovery can tell. So it guards one log, never what
    many logs share (`disk_errors`).
    """

    __slots__ = ("_name", "failure")

    def __init__(self, name: str) -> None:
        self._name = name
        self.failure: OSError | None = None

    def check(self) -> None:
        """Raise KafkaStorageError if the disk has failed."""
        if self.failure is not None:
            raise self._error(self.failure)

    def __enter__(self) -> None:
        if self.failure is not None:
            raise self._error(self.failure)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None and isinstance(problem, OSError):
            self.failure = problem
            raise self._error(problem) from problem

    def _error(self, problem: OSError) -> KafkaError:
        return KafkaStorageError(f"The log of {self._name} failed on disk: {problem}")
