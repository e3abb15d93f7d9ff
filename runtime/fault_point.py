"""Places where a test can inject a failure between two ordered steps.

A fault point is called with the name of the place. The function that tests and chaos runs pass
raises OSError, ends the process, or waits. In a broker the function does nothing.
"""

from collections.abc import Callable

FaultPoint = Callable[[str], None]


def no_fault_point(name: str) -> None:
    """Do nothing. This is the fault point of a broker outside of tests."""
