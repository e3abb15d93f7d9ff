"""Install broken behaviour in the real classes, and remove it again.

A switch is a small patch of the released code. A test installs the switch where it builds a broker.
The switch is a context around brokers in this process, or is applied at the start of a node's
process (`broken_node.py`). A released broker does not look for switches.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

Install = Callable[[], AbstractContextManager[Any]]


@contextmanager
def replaced(owner: Any, name: str, broken: Any) -> Iterator[None]:
    """Replace an attribute of a class or module while the context is open."""
    sound = vars(owner)[name]
    setattr(owner, name, broken)
    try:
        yield
    finally:
        setattr(owner, name, sound)


@contextmanager
def together(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
