"""A broker that kills itself with -9 at a fault point, once: `python node_that_dies.py oncelog.node
--config FILE`. The point's name stands in the file `die-at` of the cluster's directory, and the
process that takes the file away dies. A released broker has no such point: the one here is
installed where a broker is put together.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from oncelog.deploy.node_process import NodeProcess
from oncelog.node import __main__ as node
from oncelog.node.broker import Broker

DIE_AT = "die-at"
DIED_AT = "died-at"
WATCHED = ("transactions.", "partition.")


def spawn(self: NodeProcess) -> int:
    """As NodeProcess.spawn, with a broker that can be told to die."""
    command = [sys.executable, "-P", __file__, "oncelog.node", "--config", str(self.properties)]
    with self.log.open("ab") as log:
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
            start_new_session=True,
        )  # fmt: skip
    self.pid_file.write_text(f"{self._child.pid}\n")
    return self._child.pid


def arm(data: Path, fault_point: str) -> None:
    """The next node that comes to this point dies there."""
    (data / DIED_AT).unlink(missing_ok=True)
    waiting = data / f"{DIE_AT}.new"
    waiting.write_text(fault_point)
    waiting.rename(data / DIE_AT)


def disarm(data: Path) -> None:
    """Nobody dies from now on."""
    (data / DIE_AT).unlink(missing_ok=True)


def has_died(data: Path) -> bool:
    """Whether it has come to that."""
    return (data / DIED_AT).exists()


def main() -> int:
    """As `oncelog.node`, with the fault point installed at the composition root."""
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

    class DyingBroker(Broker):
        def __init__(self, config) -> None:
            super().__init__(config, fault_point=fault_point)

    node.Broker = DyingBroker  # type: ignore[misc]
    return node.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
