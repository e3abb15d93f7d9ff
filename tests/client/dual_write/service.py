"""Test a service with asyncio, 20 tasks, a pool of writers and SQLAlchemy under failures.

    python -m tests.client.dual_write.service [--seconds 600] [--seed 1] [--quiet]

Requests are cancelled at random, nodes of the cluster are killed and started again. At the end rows
and events must be equal, and each writer must still write. With --quiet there are no faults. The
program then prints the median and the 99th percentile of the time of a block, and of a plain commit
of the same row.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from oncelog.client import BlockingAdmin, CheckBackTask, DatabaseResolver, WriterPool
from oncelog.client.adapters.sqlalchemy import async_session
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeNotReady
from oncelog.deploy.faults.postgres_server import PostgresServer
from oncelog.wire.errors import KafkaError

from .ledger import Ledger, events
from .postgresql import postgresql

sa: Any = import_module("sqlalchemy")
TASKS, WRITERS, TOPIC, NODES = 20, 8, "service", 3
CUT_S, CUT_SHARE = (0.001, 0.12), 0.5  # half of the requests have a timeout, mostly a short one
KILL_EVERY_S, AWAY_S, STARTS = (3.0, 6.0), (0.5, 2.0), 5
FAILURES = (KafkaError, psycopg.Error, sa.exc.SQLAlchemyError)
INSERT = sa.text("INSERT INTO transfers (number, amount) VALUES (:number, 5)")


class Service:
    """A service with requests that write a row and an event, and the count of each outcome."""

    def __init__(self, pool: WriterPool, seed: int) -> None:
        self.pool, self.random = pool, random.Random(seed)
        self.numbers, self.told = 0, Counter[str]()

    async def request(self) -> None:
        self.numbers += 1
        number = self.numbers
        async with self.pool.transaction() as work, async_session(work) as session:
            await session.execute(INSERT, {"number": number})
            await work.send(TOPIC, b"%d" % number)

    async def requests(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            is_cut = self.random.random() < CUT_SHARE
            try:
                async with asyncio.timeout(self.random.uniform(*CUT_S) if is_cut else None):
                    await self.request()
            except TimeoutError:
                self.told["cancelled"] += 1
            except FAILURES as problem:
                self.told[type(problem).__name__] += 1
            else:
                self.told["done"] += 1

    async def each_writer_writes(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(self.pool.acquire()) for _ in range(WRITERS)]
            for writer in writers:
                self.numbers += 1
                async with writer.transaction() as work, async_session(work) as session:
                    await session.execute(INSERT, {"number": self.numbers})
                    await work.send(TOPIC, b"%d" % self.numbers)


def come_back(cluster: Cluster, node: int) -> None:
    for _ in range(STARTS):
        try:
            cluster.start(node)
            return
        except NodeNotReady as problem:  # on a busy machine
            print(f"again: {problem}", flush=True)
            with contextlib.suppress(Exception):
                cluster.kill(node)
    raise Failure(f"node {node} does not come back")


async def kill_nodes(cluster: Cluster, luck: random.Random, until_s: float) -> int:
    kills = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(luck.uniform(*KILL_EVERY_S))
        node = luck.randint(1, NODES)
        await asyncio.to_thread(cluster.kill, node)
        await asyncio.sleep(luck.uniform(*AWAY_S))
        await asyncio.to_thread(come_back, cluster, node)
        kills += 1
    return kills


async def served(cluster: Cluster, server: PostgresServer, seconds: float, seed: int) -> int:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url, connect_timeout=5)

    until_s = time.monotonic() + seconds
    resolver = DatabaseResolver(connect)
    async with WriterPool(cluster.bootstrap, TOPIC, WRITERS, connect, linger_ms=0) as pool:
        service = Service(pool, seed)
        async with CheckBackTask(cluster.bootstrap, resolver, older_than_ms=15_000):
            killing = asyncio.create_task(kill_nodes(cluster, random.Random(seed), until_s))
            await asyncio.gather(
                killing,
                *(service.requests(until_s) for _ in range(TASKS)),
            )
        await asyncio.to_thread(cluster.wait_for_isr, TOPIC, NODES)
        await service.each_writer_writes()
    kills = killing.result()
    print(f"{service.numbers} requests, {kills} kills: {dict(service.told)}", flush=True)
    return kills


def judged(cluster: Cluster, ledger: Ledger) -> int:
    rows, found = Counter(ledger.rows()), Counter(events(cluster.bootstrap, TOPIC))
    lost, invented = rows - found, found - rows
    print(f"{rows.total()} rows, {found.total()} events", end=": ")
    print(f"{lost.total()} rows without events, {invented.total()} events without rows")
    return int(bool(lost or invented))


async def measured_ms(call: Callable[[], Awaitable[None]], seconds: float) -> list[float]:
    """Repeat a call until the time is over, and return the sorted durations in ms."""
    until_s, times = time.monotonic() + seconds, list[float]()
    while not times or time.monotonic() < until_s:
        began = time.perf_counter()
        await call()
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


async def price(cluster: Cluster, server: PostgresServer, seconds: float) -> None:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    part_s = seconds / 5
    engine = import_module("sqlalchemy.ext.asyncio").create_async_engine(
        server.url.replace("postgresql:", "postgresql+psycopg:")
    )
    async with WriterPool(cluster.bootstrap, TOPIC, WRITERS, connect, linger_ms=0) as pool:
        service = Service(pool, 0)

        async def plain() -> None:
            service.numbers += 1
            async with engine.begin() as connection:
                await connection.execute(INSERT, {"number": service.numbers})

        for _ in range(2):  # the first time warms up
            for name, call in (("a plain commit", plain), ("a block", service.request)):
                times = await measured_ms(call, part_s)
                median, slow = times[len(times) // 2], times[len(times) * 99 // 100]
                print(f"{name}: {median:.1f} / {slow:.1f} ms, of {len(times)}", flush=True)
        began = time.perf_counter()
        ran = await asyncio.gather(*(measured_ms(service.request, part_s) for _ in range(TASKS)))
        rate = sum(map(len, ran)) / (time.perf_counter() - began)
        print(f"{TASKS} tasks: {rate:.0f} blocks/s")
    await engine.dispose()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args()
    logging.getLogger("oncelog").setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(nodes=NODES, data=Path(folder) / "data") as cluster,
        postgresql() as server,
    ):
        ledger = Ledger(server.connect, "%s").create()
        with BlockingAdmin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=3)
        cluster.wait_for_isr(TOPIC, NODES)
        if given.quiet:
            asyncio.run(price(cluster, server, given.seconds))
            return 0
        kills = asyncio.run(served(cluster, server, given.seconds, given.seed))
        return judged(cluster, ledger) or (0 if kills else 3)


if __name__ == "__main__":
    sys.exit(main())
