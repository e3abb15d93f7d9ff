"""A node without automatic garbage collection, which reports its unreachable objects on request.

The request is a file `collect-ID` in the cluster's directory. The node removes it, and writes a
file `garbage-ID`, a JSON object with the number of unreachable objects by type.
"""

import asyncio
import collections
import gc
import json
import sys
from pathlib import Path
from types import FrameType

from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.node import __main__ as node
from oncelog.node.broker import Broker
from oncelog.runtime.background_task import background_task

from .. import own_nodes


def program(self: NodeProcess) -> list[str]:
    """Return the command that runs a node of this file, to replace NodeProcess.program."""
    return own_nodes.program(__name__, self.module)


def question(data: Path, node_id: int) -> Path:
    """Return the path of the file that requests a collection of the node."""
    return data / f"collect-{node_id}"


def answer(data: Path, node_id: int) -> Path:
    return data / f"garbage-{node_id}"


class UncollectedBroker(Broker):
    async def start(self) -> None:
        await super().start()
        gc.collect()
        gc.disable()
        background_task("collecting", self._answer_questions())

    async def _answer_questions(self) -> None:
        data, node_id = Path(self.config.log_directory).parent, self.config.node_id
        while True:
            await asyncio.sleep(0.02)
            if question(data, node_id).exists():
                question(data, node_id).unlink()
                found = answer(data, node_id).with_suffix(".new")
                found.write_text(json.dumps(self._collect()))
                found.rename(answer(data, node_id))

    @staticmethod
    def _collect() -> dict[str, int]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        counts = collections.Counter(map(_name, gc.garbage))
        gc.garbage.clear()
        return dict(counts.most_common())


def _name(one: object) -> str:
    if isinstance(one, FrameType):
        return f"frame of {one.f_code.co_qualname}"
    return f"{type(one).__module__}.{type(one).__qualname__}"


if __name__ == "__main__":
    sys.exit(node.main(sys.argv[2:], make=UncollectedBroker))
