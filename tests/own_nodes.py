"""Nodes whose processes run a program of the tests: with a bug, or with a moment to die at.

Only what Python runs is another thing; environment, directory, log and pid file are a node's own.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def program(module: str, *arguments: str) -> list[str]:
    """What `NodeProcess.program` returns for a module of the tests, which no installation has.

    The last argument is the module that the node stands for, by which its process is known.
    """
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"runpy.run_module({module!r}, None, '__main__', True)"
    )
    return ["-P", "-c", start, *arguments]
