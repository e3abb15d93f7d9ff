"""Measure what the page costs the cluster and its own process.

    python -m tests.ui.costs [--only NAME,...] [--rounds N] [--seconds S]

page    60 partitions, 100 open transactions, 20 groups; CPU time at two refreshes a second
growth  ten minutes of refreshes while programs write and read; memory growth of the process
first   1,000 partitions; seconds until the first view
scrape  100 partitions; CPU time of a node at one scrape of each node a second
loop    3,000 partitions; latest answer of a node at one scrape of each node a second

CPU time is in percent of a core. Other processes of the machine disturb it less than they would
disturb a duration. The best of the rounds counts. The exit code is 1 if a figure is above its
bound.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

import psutil

from oncelog.client import Producer
from oncelog.client.admin import Admin
from oncelog.deploy.cluster.local_cluster import Cluster

from ..size.stage import Stage
from .screenshots import PROGRAM, load
from .sites import Visitor

REFRESH_S, WARM_S, GROWTH_S = 0.5, 12.0, 600.0
RATE_MIN = 1.8
PAGE_MAX, BROKERS_MAX, SCRAPE_MAX = 10.0, 3.0, 2.0
FIRST_MAX_S, TURN_MAX_MS, GROWTH_MAX = 1.0, 20.0, 20_000_000
VIEWS = ("/", "/topics/orders/0", "/transactions", "/groups", "/timeline", "/topics")


class Bounds:
    """The check that measured figures are within their bounds. It prints each figure."""

    def __init__(self) -> None:
        self.are_held = True

    def tell(self, what: str, value: float, most: float, unit: str) -> None:
        verdict = "holds" if value <= most else "DOES NOT HOLD"
        self.are_held &= value <= most
        print(f"{what}: {value:.2f} {unit}, at most {most:g}: {verdict}", flush=True)


@asynccontextmanager
async def page(data: Path) -> AsyncIterator[tuple[psutil.Process, Visitor, float]]:
    """Run `oncelog ui`. Yield its process, a visitor, and the seconds until its first output."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "ui", "--no-open", "--data", str(data), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        address, token = line.split()[2].split("/?token=")
        visitor = Visitor(int(address.rpartition(":")[2]), {"Authorization": f"Bearer {token}"})
        yield psutil.Process(process.pid), visitor, time.monotonic() - began_s
    finally:
        process.terminate()
        await process.wait()


async def refresh(visitor: Visitor, seconds: float, views: Sequence[str] = VIEWS[:2]) -> None:
    """Request a view twice a second, and print the reached rate. A low rate is marked."""
    end_s = time.monotonic() + seconds
    for number, address in enumerate(itertools.cycle(views)):
        began_s = time.monotonic()
        if began_s >= end_s:
            rate = number / seconds
            print(
                f"  {rate:.2f} refreshes/s{' ARE TOO FEW' if rate < RATE_MIN else ''}", flush=True
            )
            return
        answer = await visitor.get(address)
        assert answer.status == 200, (address, answer.status)
        await asyncio.sleep(max(0.0, REFRESH_S - (time.monotonic() - began_s)))


def cpu_s(cluster: Cluster) -> float:
    """Return the CPU seconds that all nodes have used so far."""
    return sum(status.cpu_s for status in cluster.status())


async def percent(cluster: Cluster, seconds: float, doing: Coroutine[Any, Any, None]) -> float:
    """Await `doing`, and return the percent of a core that all nodes used in that time."""
    before, began_s = cpu_s(cluster), time.monotonic()
    await doing
    return (cpu_s(cluster) - before) / (time.monotonic() - began_s) * 100


async def page_cost(bounds: Bounds, rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, Cluster(3, data=Path(folder) / "c") as cluster:
        producers: list[Producer] = []
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partitions=60)
            for number in range(100):
                settings = {"transactional.id": f"app-{number}", "transaction.timeout.ms": 900_000}
                producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("orders", value=b"open", partition=number % 60)
                await producer.flush()
                producers.append(producer)
            for number in range(20):
                offsets = {("orders", index): 0 for index in range(60)}
                await admin.groups.commit(f"group-{number}", offsets)
        ours: list[float] = []
        brokers: list[float] = []
        for _ in range(rounds):
            idle = await percent(cluster, seconds, asyncio.sleep(seconds))
            async with page(cluster.data) as (process, visitor, _):
                await refresh(visitor, WARM_S)
                assert (await visitor.get("/api/cluster")).json()["open_transactions"] == 100
                before = sum(process.cpu_times()[:2])
                seen = await percent(cluster, seconds, refresh(visitor, seconds))
                ours.append((sum(process.cpu_times()[:2]) - before) / seconds * 100)
                brokers.append(seen - idle)
            print(f"  page {ours[-1]:.2f} %, brokers {seen:.2f} - {idle:.2f} %", flush=True)
        bounds.tell("the page's process", min(ours), PAGE_MAX, "%")
        bounds.tell("all brokers, more", min(brokers), BROKERS_MAX, "%")
        await asyncio.gather(*(producer.close() for producer in producers))


async def growth(bounds: Bounds, rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, Cluster(3, data=Path(folder) / "c") as cluster:
        async with load(cluster.bootstrap), page(cluster.data) as (process, visitor, _):
            await refresh(visitor, 60.0, VIEWS)
            before = process.memory_info().rss
            most = before
            for _ in range(max(1, int((GROWTH_S if seconds >= 20 else seconds) // 30))):
                await refresh(visitor, 30.0, VIEWS)
                most = max(most, process.memory_info().rss)
            print(
                f"  {before / 1e6:.1f} MB after a minute, {most / 1e6:.1f} MB at most", flush=True
            )
            bounds.tell("memory in ten minutes", (most - before) / 1e6, GROWTH_MAX / 1e6, "MB")


async def first(bounds: Bounds, rounds: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, Cluster(3, data=Path(folder) / "c") as cluster:
        async with Admin(cluster.bootstrap, timeout_ms=60_000) as admin:
            await admin.create_topic("orders", partitions=1_000)
        await asyncio.sleep(5)
        views: list[float] = []
        for _ in range(rounds):
            async with page(cluster.data) as (process, visitor, started_s):
                began_s, before_s = time.monotonic(), sum(process.cpu_times()[:2])
                words = (await visitor.get("/")).body
                views.append(time.monotonic() - began_s)
                used_s = sum(process.cpu_times()[:2]) - before_s
                while "not answered yet" in words:  # the page fills in as answers come
                    await asyncio.sleep(0.05)
                    words = (await visitor.get("/")).body
                whole_s = time.monotonic() - began_s
                assert "1,0" in words
            words = f"first {views[-1]:.2f} s ({used_s:.2f} s of CPU), whole {whole_s:.2f} s"
            print(f"  started {started_s:.2f} s, {words}", flush=True)
        bounds.tell("first view of 1,000 partitions", min(views), FIRST_MAX_S, "s")


@contextmanager
def scraping(cluster: Cluster) -> Iterator[list[int]]:
    """Scrape the metrics of each node once a second until the block ends.

    Yield the list that gets the size of each scraped page in bytes.
    """
    is_over, sizes = Event(), list[int]()

    def scrape(url: str) -> None:
        while not is_over.wait(1.0):
            with urlopen(url, timeout=30) as answer:
                sizes.append(len(answer.read()))

    urls = [cluster.file.entry(n).metrics_url for n in cluster.node_ids]
    threads = [Thread(target=scrape, args=(url,)) for url in urls]
    for thread in threads:
        thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


async def scrape(bounds: Bounds, rounds: int, seconds: float) -> None:
    with Cluster(3, metrics=True) as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partitions=100)
        await asyncio.sleep(5)
        more: list[float] = []
        for _ in range(rounds):
            idle = await percent(cluster, seconds, asyncio.sleep(seconds))
            with scraping(cluster) as sizes:
                seen = await percent(cluster, seconds, asyncio.sleep(seconds))
            more.append((seen - idle) / 3)
            words = f"{len(sizes)} pages of {max(sizes):,} bytes"
            print(f"  {seen:.2f} - {idle:.2f} % over three nodes, {words}", flush=True)
        bounds.tell("a scrape a second, of a node", min(more), SCRAPE_MAX, "%")


async def loop(bounds: Bounds, rounds: int, seconds: float) -> None:
    with Cluster(3, metrics=True) as cluster:
        await asyncio.to_thread(Stage("loop", cluster, is_short=True).create, "wide", 3_000)
        await asyncio.sleep(10)
        latest: list[float] = []
        for _ in range(rounds):
            idle = await asyncio.to_thread(watched, cluster, seconds)
            with scraping(cluster) as sizes:
                latest.append(await asyncio.to_thread(watched, cluster, seconds))
            words = f"{len(sizes)} pages of {max(sizes, default=0):,} bytes"
            print(f"  latest {latest[-1]:.1f} ms, without scrapes {idle:.1f} ms, {words}")
        bounds.tell("latest answer less its waits", min(latest), TURN_MAX_MS, "ms")


def watched(cluster: Cluster, seconds: float) -> float:
    """Ping each node every 5 ms for `seconds`. Return how many ms the latest answer was late.

    The time for which the node or the probe waited for a processor is subtracted.
    """
    stage = Stage("loop", cluster, is_short=True)
    with stage.watched("scrapes"):
        time.sleep(seconds)
    assert stage.outcome.seen is not None
    return stage.outcome.seen.probe.max_less_wait_ms


Part = Callable[[Bounds, int, float], Coroutine[Any, Any, None]]
PARTS: dict[str, Part] = {
    "page": page_cost,
    "first": first,
    "scrape": scrape,
    "loop": loop,
    "growth": growth,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ui.costs", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), metavar="NAME,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    bounds = Bounds()
    for name in options.only.split(","):
        print(f"{name}:", flush=True)
        asyncio.run(PARTS[name](bounds, options.rounds, options.seconds))
    return 0 if bounds.are_held else 1


if __name__ == "__main__":
    sys.exit(main())
