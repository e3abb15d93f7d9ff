"""The command of nodes that run a module of the tests, which plants a bug or kills the node.

Only the command differs from that of an ordinary node. Environment, directory, log and pid file are
the same.
"""

from pathlib import Path

ROOT = Path(__file__).parents[1]


def program(module: str, *arguments: str) -> list[str]:
    """Return the command that starts a node with this module of the tests.

    The last argument must be the module of an ordinary node, by which the process is recognized.
    """
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
        f"runpy.run_module({module!r}, None, '__main__', True)"
    )
    return ["-P", "-c", start, *arguments]
