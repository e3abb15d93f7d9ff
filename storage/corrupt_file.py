"""The error of a corrupt file, and the errors that reading a log may raise."""

import struct
from pathlib import Path

from ..wire.errors import CorruptMessage, InvalidRecord, KafkaError


class CorruptFile(Exception):
    """The error of a corrupt file, with its name, the damage, and a remedy for the operator."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


# The errors of a damaged index; struct.error is raised if the file is too short.
INDEX_TROUBLE = (CorruptFile, struct.error)
# The errors of any damaged file of a log.
UNREADABLE = (*INDEX_TROUBLE, CorruptMessage, InvalidRecord)
# The errors that concern one log. A task for many logs continues with the others.
LOG_TROUBLE = (*UNREADABLE, KafkaError, OSError)
