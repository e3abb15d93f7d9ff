"""File descriptors that close after use, and writes of all bytes."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(path: Path, flags: int) -> Generator[int, None, None]:
    """Open a file or directory and yield its descriptor, or raise OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes | bytearray, position: int = 0) -> None:
    """Write all bytes of `data`. After an OSError some bytes may be written."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view = view[written:]
        position += written
