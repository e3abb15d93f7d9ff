"""Where a test may make something fail: between two steps whose order matters.

A fault point is called with the name of the place; what is given in tests and in chaos runs raises
OSError there, ends the process, or waits. In a broker it does nothing.
"""

from collections.abc import Callable

FaultPoint = Callable[[str], None]


def no_fault_point(name: str) -> None:
    """What a broker has outside tests."""
