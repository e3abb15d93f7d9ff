"""A file of ours that does not say what it should, and what a log that is read may raise."""

import struct
from pathlib import Path

from ..wire.errors import CorruptMessage, InvalidRecord, KafkaError


class CorruptFile(Exception):
    """Names the file, what is wrong with it, and what the reader of the message should do."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


# What reading a damaged file of a log may raise; struct.error: it is shorter than it was.
UNREADABLE = (CorruptFile, CorruptMessage, InvalidRecord, struct.error)
# What one log may raise of its own. A task that looks after many goes on with the others.
LOG_TROUBLE = (*UNREADABLE, KafkaError, OSError)
