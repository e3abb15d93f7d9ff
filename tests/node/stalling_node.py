"""A node that blocks its event loop, or loses a background task, when a file commands it.

The file `order` in the cluster's directory has one word. The node that removes the file executes
the command.
"""

import asyncio
import sys
import time
from collections.abc import Generator
from pathlib import Path

from oncelog.coordinator.metadata.cluster_model import Changes
from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.node import __main__ as node
from oncelog.node.broker import Broker
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.runtime.background_task import background_task

from .. import own_nodes

STALL_S = 0.7
ORDER = "order"


def program(self: NodeProcess) -> list[str]:
    """Return the command that runs a node of this file, to replace NodeProcess.program."""
    return own_nodes.program(__name__, self.module)


class StallingBroker(Broker):
    def __init__(self, config: BrokerConfig) -> None:
        self._order = Path(config.log_directory).parent / ORDER
        self._stalls_in_apply = False
        super().__init__(config)
        self.state.on_change(self._changed)

    async def start(self) -> None:
        await super().start()
        background_task("taking orders", self._take_orders())

    def _changed(self, _: Changes) -> None:
        if self._stalls_in_apply:
            self._stalls_in_apply = False
            time.sleep(STALL_S)

    async def _take_orders(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            if not self._order.exists():
                continue
            word = self._order.read_text()
            self._order.unlink()
            if word == "task":
                time.sleep(STALL_S)
            elif word == "work":
                await self._work.run("loading of a group", self._long_step())
            elif word == "command":
                self._stalls_in_apply = True
            elif word == "fail":
                raise LookupError("an unexpected defect")

    @staticmethod
    def _long_step() -> Generator[None, None, None]:
        end_s = time.thread_time() + STALL_S
        while time.thread_time() < end_s:
            pass
        yield


if __name__ == "__main__":
    sys.exit(node.main(sys.argv[2:], make=StallingBroker))
