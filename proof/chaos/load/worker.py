"""One process of clients, `python -m oncelog.proof.chaos.load.worker JSON`.

The process runs a load until SIGTERM, or until its parent is gone, and reports the errors of its
clients on stdout. If proxies are given, its connections use them, one for each broker port.
"""

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path

from ....deploy.cluster.secured.connection import client_config
from ...judge.history.recorder import Recorder
from .incarnations import Tally
from .order import WorkerOrder


class _ProxiedLoop(asyncio.SelectorEventLoop):
    """An event loop on which connections to certain ports go to the ports of proxies instead."""

    def __init__(self, ports: dict[int, int]) -> None:
        super().__init__()
        self._ports = ports

    async def create_connection(self, factory, host=None, port=None, **options):  # type: ignore[override]
        """Connect, to the proxy's port if this port has a proxy."""
        chosen = port if port is None else self._ports.get(port, port)
        return await super().create_connection(factory, host, chosen, **options)  # type: ignore[arg-type]


async def _work(order: WorkerOrder, recorder: Recorder) -> Tally:
    from .workloads import load

    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    return await load(
        client_config(order.connection),
        recorder,
        order.settings,
        lambda: end.is_set() or os.getppid() != order.parent,
        random.Random(order.seed),
        number=order.number,
        workloads=order.workloads,
        transactional_clients=order.transactional_clients,
    )


def main() -> int:
    order = WorkerOrder.from_json(sys.argv[1])
    recorder = Recorder.open(Path(order.run))
    if order.library == "confluent":
        from .confluent_load import work

        tally = work(order, recorder)
    elif order.proxies:
        with asyncio.Runner(loop_factory=lambda: _ProxiedLoop(order.proxies)) as runner:
            tally = runner.run(_work(order, recorder))
    else:
        import uvloop

        tally = uvloop.run(_work(order, recorder))
    recorder.close()
    print(json.dumps(["ended", tally.clients, tally.errors]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
