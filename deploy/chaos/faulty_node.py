"""`python -m oncelog.deploy.chaos.faulty_node --config FILE`: a node that can be broken inside.

As `oncelog.node`, put together with fault points and a clock that jumps; see node_faults.
"""

import sys
from pathlib import Path

from ...node import __main__ as node
from ...node.broker import Broker
from ...node.config import BrokerConfig
from .node_faults import DOOR, FaultDoor, NodeFaults


class FaultyBroker(Broker):
    """A broker whose disk, clock and life are in the hands of a schedule."""

    def __init__(self, config: BrokerConfig) -> None:
        faults = NodeFaults()
        super().__init__(config, fault_point=faults.point)
        self._clock = faults.clock
        FaultDoor(Path(config.peer_directory) / f"{DOOR}-{config.node_id}", faults)


def main() -> int:
    """Run the node in the foreground."""
    node.Broker = FaultyBroker  # type: ignore[misc]
    return node.main()


if __name__ == "__main__":
    sys.exit(main())
