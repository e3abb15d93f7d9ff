"""A broker that kills itself with SIGKILL at a fault point, once.

The file `die-at` in the cluster's directory contains the name of the point. The process that
renames the file dies. A released broker has no fault points. This program adds the point to the
broker that it builds.
"""

import os
import signal
import sys
from pathlib import Path

from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.node import __main__ as node
from oncelog.node.broker import Broker

from .. import own_nodes

DIE_AT = "die-at"
DIED_AT = "died-at"
WATCHED = ("transactions.", "partition.")


def program(self: NodeProcess) -> list[str]:
    """Return the command of this program, with which a test replaces NodeProcess.program."""
    return own_nodes.program(__name__, self.module)


def arm(data: Path, fault_point: str) -> None:
    """Let the next node that reaches the fault point die there."""
    (data / DIED_AT).unlink(missing_ok=True)
    waiting = data / f"{DIE_AT}.new"
    waiting.write_text(fault_point)
    waiting.rename(data / DIE_AT)


def disarm(data: Path) -> None:
    """Let no node die from now on."""
    (data / DIE_AT).unlink(missing_ok=True)


def has_died(data: Path) -> bool:
    """Return whether a node has died at the armed fault point."""
    return (data / DIED_AT).exists()


def main() -> int:
    """Run `oncelog.node` with a broker that dies at the armed fault point."""
    arguments = sys.argv[2:]
    data = Path(arguments[arguments.index("--config") + 1]).parents[1]
    armed = data / DIE_AT

    def fault_point(name: str) -> None:
        if not name.startswith(WATCHED):
            return
        try:
            if armed.read_text() == name:
                armed.rename(data / DIED_AT)
                os.kill(os.getpid(), signal.SIGKILL)
        except FileNotFoundError:
            return

    return node.main(arguments, make=lambda config: Broker(config, fault_point=fault_point))


if __name__ == "__main__":
    sys.exit(main())
