"""A node of a chaos run that has a deliberate bug.

`python -m tests.chaos.broken_faulty_node SWITCH MODULE --config FILE`. own_nodes.py says how a
cluster starts such a program instead of a node.
"""

import sys

from oncelog.deploy.faults.faulty_cluster import FaultyNode

from .. import own_nodes
from ..switches.catalogue import SWITCHES


def node_with(switch: str) -> type[FaultyNode]:
    """Return the FaultyNode class with the bug that the switch names."""

    class BrokenNode(FaultyNode):
        def program(self) -> list[str]:
            return own_nodes.program(__name__, switch, self.module)

    return BrokenNode


if __name__ == "__main__":
    from oncelog.deploy.faults import faulty_node

    name = sys.argv[1]
    sys.argv = sys.argv[2:]
    with SWITCHES[name].install():
        sys.exit(faulty_node.main())
