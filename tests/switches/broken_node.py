"""Run a node with the bug of a switch.

The command is `python -m tests.switches.broken_node SWITCH oncelog.node --config FILE`.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.node.__main__ import main

from .. import own_nodes
from .catalogue import SWITCHES
from .patching import replaced


@contextmanager
def nodes_with(switch: str | None) -> Iterator[None]:
    """Start nodes with the bug of `switch` while the context is open, or without a bug for None."""
    if switch is None:
        yield
        return

    def program(self: NodeProcess) -> list[str]:
        return own_nodes.program(__name__, switch, self.module)

    with replaced(NodeProcess, "program", program):
        yield


if __name__ == "__main__":
    with SWITCHES[sys.argv[1]].install():
        sys.exit(main(sys.argv[3:]))
