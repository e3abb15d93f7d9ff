"""Nodes that run a program of the tests, with a planted bug or a point at which they die.

Only the program that Python runs differs from an ordinary node. Environment, directory, log and pid
file are equal.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def program(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of the tests as a node's program.

    The last argument is the replaced module, by which the process of the node is recognized.
    """
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"runpy.run_module({module!r}, None, '__main__', True)"
    )
    return ["-P", "-c", start, *arguments]
