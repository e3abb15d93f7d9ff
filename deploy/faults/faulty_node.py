"""`python -m oncelog.deploy.faults.faulty_node --config FILE` runs a node with faults inside.

The node is `oncelog.node` with fault points and a clock that jumps (see node_faults).
"""

import sys
from pathlib import Path

from ...node import __main__ as node
from ...node.broker import Broker
from ...node.config.broker_config import BrokerConfig
from ...node.environment import Surroundings
from .node_faults import DOOR, NodeFaults, serve_faults


def faulty_broker(config: BrokerConfig) -> Broker:
    """Create a broker with a disk, a clock and a process that fail on request (node_faults.py)."""
    faults = NodeFaults()
    surroundings = Surroundings(clock=faults.clock)
    broker = Broker(config, fault_point=faults.point, surroundings=surroundings)
    serve_faults(Path(config.peer_directory) / f"{DOOR}-{config.node_id}", faults)
    return broker


def main() -> int:
    """Run the node in the foreground."""
    return node.main(make=faulty_broker)


if __name__ == "__main__":
    sys.exit(main())
