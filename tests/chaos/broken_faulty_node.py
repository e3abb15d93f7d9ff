"""A node of a chaos run with a bug.

`python -m tests.chaos.broken_faulty_node SWITCH MODULE --config FILE`; MODULE is what it stands
for, by which its process is known.
"""

import subprocess
import sys
from pathlib import Path

from oncelog.deploy.chaos.faulty_cluster import FaultyNode

from ..switches.catalogue import SWITCHES

ROOT = Path(__file__).parents[2]


def node_with(switch: str) -> type[FaultyNode]:
    """The process of a node that has this bug."""

    class BrokenNode(FaultyNode):
        def spawn(self) -> int:
            command = [sys.executable, "-m", __name__, switch, self.module,
                       "--config", str(self.properties)]  # fmt: skip
            with self.log.open("ab") as log:
                self._child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                    start_new_session=True,
                )  # fmt: skip
            self.pid_file.write_text(f"{self._child.pid}\n")
            return self._child.pid

    return BrokenNode


if __name__ == "__main__":
    from oncelog.deploy.chaos import faulty_node

    name = sys.argv[1]
    sys.argv = sys.argv[2:]
    with SWITCHES[name].install():
        sys.exit(faulty_node.main())
