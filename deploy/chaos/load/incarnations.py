"""Clients that live for a while and are made anew: what all workloads share."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from ....wire.errors import KafkaError
from .settings import LoadSettings

Stop = Callable[[], bool]
AFTER_PROBLEM_MS = 100


class Client(Protocol):
    @property
    def is_over(self) -> bool:
        """Whether it may be broken: a new one has to take its place."""
        ...

    async def open(self) -> None:
        """Make it ready. Raises KafkaError."""

    async def work(self) -> None:
        """One operation, with the pause after it. Raises KafkaError."""

    async def close(self) -> None:
        """End it as a program should."""


@dataclass(slots=True)
class Tally:
    """What clients met, by the error's name, and how many lived."""

    errors: Counter[str] = field(default_factory=Counter[str])
    clients: int = 0

    def met(self, problem: KafkaError) -> None:
        self.errors[type(problem).__name__] += 1


async def one_after_another(
    make: Callable[[], Client],
    stop: Stop,
    dice: random.Random,
    settings: LoadSettings,
    tally: Tally | None = None,
) -> None:
    """Let clients work until `stop()`, each until it is over or old."""
    tally = Tally() if tally is None else tally
    while not stop():
        await _until(make(), stop, dice, settings, tally)


async def _until(
    client: Client, stop: Stop, dice: random.Random, settings: LoadSettings, tally: Tally
) -> None:
    """Let one client work until it is over, or old, or `stop()`; then end it, somehow."""
    clock = asyncio.get_running_loop().time
    end_of_life = clock() + dice.uniform(0.2, 1.0) * settings.life_ms_max / 1000
    tally.clients += 1
    try:
        await client.open()
        while not (stop() or client.is_over or clock() > end_of_life):
            try:
                await client.work()
            except KafkaError as problem:
                tally.met(problem)
                if not problem.retriable:
                    break
                await pause(AFTER_PROBLEM_MS, dice)
    except KafkaError as problem:
        tally.met(problem)
        await pause(AFTER_PROBLEM_MS, dice)
    finally:
        await client.close()


async def pause(mean_ms: float, dice: random.Random) -> None:
    """Wait, this long on average and at most five times that."""
    if mean_ms > 0:
        await asyncio.sleep(min(dice.expovariate(1 / mean_ms), 5 * mean_ms) / 1000)


async def ending(*closing: Awaitable[None]) -> None:
    """Close all of these, whatever one of them says."""
    for one in closing:
        try:
            await one
        except KafkaError:
            continue  # the cluster is being broken; what matters is that nothing of it is left
