"""Runs the load of one process: several clients of every workload, on one event loop.

The load uses only the cluster, recorder, settings, end and random numbers that it is given. The
argument `number` is part of the transactional ids, so any number of loads can run side by side.
"""

import asyncio
import random
from dataclasses import replace

from ....client.view_source import Source
from ...judge.history.progress import UnreadPartitions
from ...judge.history.recorder import Recorder
from .append import append
from .bank import bank
from .incarnations import LoadContext, Stop, Tally
from .read_process_write import read_commit, read_process_write
from .rough import rough
from .settings import LoadSettings

WORKLOADS = ("append", "job", "bank", "readers")


async def load(
    source: Source,
    recorder: Recorder,
    settings: LoadSettings,
    stop: Stop,
    rng: random.Random,
    *,
    number: int = 0,
    workloads: tuple[str, ...] = WORKLOADS,
    transactional_clients: int = 2,
) -> Tally:
    """Run these workloads until `stop()`. Return the counts of their clients and errors."""
    tally, unread = Tally(), UnreadPartitions()
    ids = tuple(f"append-{number}-{i}" for i in range(transactional_clients))

    def context(of: LoadSettings = settings) -> LoadContext:
        """Return the context of one client with the settings `of` and its own random numbers."""
        own_rng = random.Random(rng.getrandbits(64))
        return LoadContext(source, recorder, of, stop, own_rng, tally)

    running = []
    if "append" in workloads:
        for mode in ("plain", "idempotent"):
            running.append(append(context(), name="", mode=mode, unread=unread))
        running.append(rough(context()))
        for name in ids:
            others = tuple(each for each in ids if each != name)
            running.append(
                append(context(), name=name, mode="transactional", others=others, unread=unread)
            )
    if "job" in workloads:
        running.append(read_process_write(context(), name=f"job-{number}"))
    guests = replace(settings, life_ms_max=settings.visit_ms_max, pause_ms=settings.visit_pause_ms)
    for i in range(settings.visitors):
        if "job" in workloads and settings.protocol_of(settings.group) == "consumer":
            running.append(read_process_write(context(guests), name=f"job-{number}-{i}"))
        if "readers" in workloads and settings.protocol_of(settings.readers) == "consumer":
            running.append(read_commit(context(guests)))
    if "bank" in workloads:
        running.append(bank(context(), name=f"bank-{number}"))
    if "readers" in workloads:
        running.append(read_commit(context()))
    async with asyncio.TaskGroup() as group:
        for one in running:
            group.create_task(one)
    return tally
