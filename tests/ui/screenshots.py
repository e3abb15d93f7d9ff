"""Pictures of the page for docs/ui.md and the README: python -m tests.ui.screenshots

Needs chromium, chromium-driver and the extra test-ui. A cluster of three nodes has two writers, one
transaction that stays open, two groups, and a node that is killed and started again.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from oncelog.client import Consumer, Producer
from oncelog.client.admin import Admin
from oncelog.deploy.cluster.local_cluster import Cluster

from .chromium import Browser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
SECONDS_BEFORE, SETTLED_S = 25, 4
VIEWS = {
    "now": "/",
    "topics": "/topics",
    "partition": "/topics/orders/1",
    "records": "/topics/payments/0/records",
    "transaction": "/transactions/nightly-import",
    "group": "/groups/billing",
    "timeline": "/timeline",
}
IN_ALL_FORMS = ("now", "partition")  # dark, and on a phone, too
HEIGHT_MAX = 1_400


async def write(bootstrap: str, name: str) -> None:
    """Commit small transactions, and abort each tenth."""
    number = 0
    async with Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) as producer:
        await producer.init_transactions()
        while True:
            number += 1
            await producer.begin_transaction()
            for each in range(10):
                value = f'{{"order": {number * 10 + each}, "amount": {each * 7}}}'.encode()
                topic = "payments" if each % 5 == 0 else "orders"
                await producer.send(topic, value=value, key=f"customer-{each}".encode())
            if number % 10:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
            await asyncio.sleep(0.5)


async def hold(bootstrap: str) -> None:
    """Leave a transaction open."""
    settings = {"transactional.id": "nightly-import", "transaction.timeout.ms": 600_000}
    async with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(40):
            await producer.send("orders", value=b"imported", key=f"line-{number}".encode())
        await producer.flush()
        await asyncio.Event().wait()


async def read(bootstrap: str, group: str, isolation: str) -> None:
    """Read as a group."""
    settings = {"group.id": group, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    async with Consumer({"bootstrap.servers": bootstrap, **settings}) as consumer:
        consumer.subscribe(["orders", "payments"])
        while True:
            await consumer.poll(timeout_ms=500)


@contextlib.asynccontextmanager
async def load(bootstrap: str) -> AsyncIterator[None]:
    """Topics, and programs that write and read until the block ends."""
    async with Admin(bootstrap) as admin:
        for topic, partitions in (("orders", 6), ("payments", 1), ("audit", 1)):
            await admin.create_topic(topic, partitions=partitions)
    work = [
        asyncio.create_task(write(bootstrap, "checkout-1")),
        asyncio.create_task(write(bootstrap, "checkout-2")),
        asyncio.create_task(read(bootstrap, "billing", "read_committed")),
        asyncio.create_task(read(bootstrap, "reports", "read_uncommitted")),
    ]
    await asyncio.sleep(6)
    work.append(asyncio.create_task(hold(bootstrap)))
    try:
        yield
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


@contextlib.asynccontextmanager
async def page(data: Path) -> AsyncIterator[str]:
    """The page as a process; its address."""
    program = (sys.executable, "-P", "-m", "oncelog.cli", "ui", "--no-open", "--data", data.name)
    process = await asyncio.create_subprocess_exec(
        *program, stdout=asyncio.subprocess.PIPE, cwd=data.parent
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[2]
    finally:
        process.terminate()
        await process.wait()


def take(address: str) -> None:
    """Take all pictures."""
    chrome = Browser(address)
    try:
        for name in VIEWS:
            shoot(chrome, name, "light", 1_280)
            if name in IN_ALL_FORMS:
                shoot(chrome, name, "dark", 1_280)
                shoot(chrome, name, "light", 390)
    finally:
        chrome.driver.quit()


def shoot(chrome: Browser, name: str, scheme: str, width: int) -> None:
    """Take one picture, as high as the view, up to a bound."""
    features: list[Any] = [{"name": "prefers-color-scheme", "value": scheme}]
    chrome.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chrome.size(width, 600)
    chrome.go(VIEWS[name])
    chrome.wait(lambda: chrome.driver.execute_script("return document.readyState") == "complete")
    height = chrome.driver.execute_script("return document.documentElement.scrollHeight")
    chrome.size(width, min(height, HEIGHT_MAX))
    form = "phone" if width < 600 else scheme
    chrome.driver.save_screenshot(str(FOLDER / f"{name}-{form}.png"))


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Cluster(nodes=3, data=Path(folder) / "shop") as c:
        async with page(c.data) as address, load(c.bootstrap):
            await asyncio.sleep(SETTLED_S)
            node = await asyncio.to_thread(c.leader, "orders", 1)
            await asyncio.to_thread(c.kill, node)
            await asyncio.sleep(SETTLED_S)
            await asyncio.to_thread(c.start, node)
            await asyncio.sleep(SECONDS_BEFORE)
            await asyncio.to_thread(take, address)


if __name__ == "__main__":
    asyncio.run(main())
