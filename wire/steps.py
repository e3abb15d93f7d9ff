"""Work that grows, written as a generator: it yields wherever others may run.

The lowest floor has only the type, and how to run such work at once. Brokers run it in slices of
their event loop: replication/sliced_work.py says how, and why.
"""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]


def run_to_end(steps: Steps[Result]) -> Result:
    """Run a generator at once: in an executor, in a tool, or when it is known to be short."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
