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


# What a damaged index raises; struct.error: the file is shorter than it was.
INDEX_TROUBLE = (CorruptFile, struct.error)
# What any damaged file of a log may raise.
UNREADABLE = (*INDEX_TROUBLE, CorruptMessage, InvalidRecord)
# What one log may raise of its own. A task that looks after many goes on with the others.
LOG_TROUBLE = (*UNREADABLE, KafkaError, OSError)
