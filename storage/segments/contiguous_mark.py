"""The mark of a log that never had a gap between two offsets, an empty file in its directory.

Only compaction leaves gaps, in this log or in the one that its batches were copied from. In a
marked log a gap before the last batch is damage. Kafka and earlier releases delete the file at
their next start, because of its suffix, and may append gaps afterwards.
"""

import os
from pathlib import Path

MARK = "contiguous.deleted"


def mark(directory: Path) -> None:
    """Create the mark in the directory of a new log, or raise OSError."""
    os.close(os.open(directory / MARK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def is_marked(directory: Path) -> bool:
    """Return whether the log has the mark."""
    return (directory / MARK).exists()


def unmark(directory: Path) -> None:
    """Remove the mark before the first gap, or raise OSError."""
    (directory / MARK).unlink(missing_ok=True)
