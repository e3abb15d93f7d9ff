"""A file of ours that does not say what it should."""

from pathlib import Path


class CorruptFile(Exception):
    """Names the file, what is wrong with it, and what the reader of the message should do."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy
