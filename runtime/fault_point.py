"""Places where a test can inject a failure, between two steps of which the order matters.

A fault point is called with the name of the place. The function that tests and chaos runs supply
raises OSError there, ends the process, or waits. In a broker it does nothing.
"""

from collections.abc import Callable

FaultPoint = Callable[[str], None]


def no_fault_point(name: str) -> None:
    """Do nothing: the fault point of a broker outside tests."""
