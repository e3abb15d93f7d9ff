"""The load of one process: several clients of every workload, as coroutines of one event loop.

Everything comes from outside: where the cluster is, the recorder, the settings, when to stop, the
dice. A number makes names different, so that any number of loads can run side by side.
"""

import asyncio
import random

from ....client.view_source import Source
from ...judge.history.progress import UnreadPartitions
from ...judge.history.recorder import Recorder
from .append import append
from .bank import bank
from .incarnations import Stop, Tally
from .read_process_write import read_process_write
from .settings import LoadSettings

WORKLOADS = ("append", "job", "bank")


async def load(
    source: Source,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Stop,
    dice: random.Random,
    *,
    number: int = 0,
    workloads: tuple[str, ...] = WORKLOADS,
    transactional_clients: int = 2,
) -> Tally:
    """Run these workloads until `stop()`; what the clients met."""
    tally, unread = Tally(), UnreadPartitions()
    ids = tuple(f"append-{number}-{i}" for i in range(transactional_clients))
    given = (source, recorder, settings, stop)

    def more_dice() -> random.Random:
        return random.Random(dice.getrandbits(64))

    running = []
    if "append" in workloads:
        for mode in ("plain", "idempotent"):
            running.append(append(
                *given, more_dice(), name="", mode=mode, unread=unread, tally=tally
            ))  # fmt: skip
        for name in ids:
            others = tuple(each for each in ids if each != name)
            running.append(append(
                *given, more_dice(), name=name, mode="transactional", others=others,
                unread=unread, tally=tally,
            ))  # fmt: skip
    if "job" in workloads:
        name = f"job-{number}"
        running.append(read_process_write(*given, more_dice(), name=name, tally=tally))
    if "bank" in workloads:
        running.append(bank(*given, more_dice(), name=f"bank-{number}", tally=tally))
    async with asyncio.TaskGroup() as group:
        for one in running:
            group.create_task(one)
    return tally
