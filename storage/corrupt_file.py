"""The errors of corrupt files, and those that reading a log may raise."""

import struct
from pathlib import Path

from ..wire.errors import CorruptMessage, InvalidRecord, KafkaError


class CorruptFile(Exception):
    """A corrupt file: its name, what is wrong with it, and what the operator should do."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


# The errors of a damaged index; struct.error: the file is shorter than it was.
INDEX_TROUBLE = (CorruptFile, struct.error)
# The errors of any damaged file of a log.
UNREADABLE = (*INDEX_TROUBLE, CorruptMessage, InvalidRecord)
# The errors that concern one log alone. A task that serves many logs goes on with the others.
LOG_TROUBLE = (*UNREADABLE, KafkaError, OSError)
