"""A descriptor for as long as it is needed, and bytes that are written whole."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path, flags: int) -> Generator[int, None, None]:
    """The descriptor of a file or directory. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray, position: int = 0) -> None:
    """All bytes of `data`, or OSError with some of them possibly written."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view = view[written:]
        position += written
