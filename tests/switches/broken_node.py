"""A node with a bug: `python -m tests.switches.broken_node SWITCH oncelog.node --config FILE`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.deploy.node_process import NodeProcess
from oncelog.node.__main__ import main

from .catalogue import SWITCHES
from .patching import replaced

ROOT = Path(__file__).parents[2]


@contextmanager
def nodes_with(switch: str | None) -> Iterator[None]:
    """Nodes that are started in this context have the bug; None: they are as released."""
    if switch is None:
        yield
        return

    def spawn(self: NodeProcess) -> int:
        command = [sys.executable, "-m", "tests.switches.broken_node", switch, "oncelog.node",
                   "--config", str(self.properties)]  # fmt: skip
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        self.pid_file.write_text(f"{self._child.pid}\n")
        return self._child.pid

    with replaced(NodeProcess, "spawn", spawn):
        yield


if __name__ == "__main__":
    with SWITCHES[sys.argv[1]].install():
        sys.exit(main(sys.argv[3:]))
