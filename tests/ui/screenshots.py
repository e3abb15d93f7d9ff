"""Take the pictures of docs/ui.md and the README, by python -m tests.ui.screenshots.

This needs chromium, chromium-driver and the extra test-ui. A cluster of three nodes has two
producers, a transaction that stays open, two groups, and a node that is killed and restarted. One
picture shows a run of `oncelog prove` with an application that commits offsets after its output.
"""

import asyncio
import base64
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from oncelog.client import Consumer, Producer
from oncelog.client.admin import Admin
from oncelog.deploy.cluster.local_cluster import Cluster

from .chromium import Browser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
PROGRAMS = Path(__file__).resolve().parents[1] / "proof" / "prove" / "programs"
SECONDS_BEFORE, SETTLED_S = 25, 4
VIEWS = {
    "now": "/",
    "topics": "/topics",
    "partition": "/topics/orders/1",
    "records": "/topics/payments/0/records",
    "transactions": "/transactions",
    "transaction": "/transactions/nightly-import",
    "groups": "/groups",
    "group": "/groups/billing",
    "timeline": "/timeline",
    "faults": "/faults",
}
RUN = {"run": "/"}
WIDTHS = {"": 1_280, "phone-": 390}
HEIGHT_MAX, QUALITY = 1_400, 55
PROGRAM = (sys.executable, "-P", "-m", "oncelog.cli")
BYTES_MAX = 2_000_000  # of all pictures


async def write(bootstrap: str, name: str) -> None:
    """Commit small transactions, and abort every tenth, until cancelled."""
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
                await producer.flush()  # records that were never sent would not be shown
                await producer.abort_transaction()
            await asyncio.sleep(0.5)


async def hold(bootstrap: str) -> None:
    """Leave a transaction open until cancelled."""
    settings = {"transactional.id": "nightly-import", "transaction.timeout.ms": 600_000}
    async with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(40):
            await producer.send("orders", value=b"imported", key=f"line-{number}".encode())
        await producer.flush()
        await asyncio.Event().wait()


async def read(bootstrap: str, group: str, isolation: str) -> None:
    """Read the topics as a member of a group until cancelled."""
    settings = {"group.id": group, "isolation.level": isolation, "auto.offset.reset": "earliest"}
    async with Consumer({"bootstrap.servers": bootstrap, **settings}) as consumer:
        consumer.subscribe(["orders", "payments"])
        while True:
            await consumer.poll(timeout_ms=500)


@contextlib.asynccontextmanager
async def load(bootstrap: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Create the topics, and run the programs that write and read until the block ends."""
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
        yield work
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


@contextlib.asynccontextmanager
async def page(folder: Path, *shown: str) -> AsyncIterator[str]:
    """Run `oncelog ui` as a process until the block ends, and yield the address of its page."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "ui", "--no-open", *shown, stdout=asyncio.subprocess.PIPE, cwd=folder
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().split()[2]
    finally:
        process.terminate()
        await process.wait()


async def prove(folder: Path) -> None:
    """Run `oncelog prove` with an at-least-once application, and keep the report in `folder`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "prove", "--faults", "kill@before-commit", "--seed", "1", "--keep", str(folder),
        "--", "python", "at_least_once.py", cwd=PROGRAMS, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert await process.wait() == 1


def take(address: str, views: Mapping[str, str]) -> None:
    """Take a picture of each of the `views`, light and dark, and in two widths."""
    chrome = Browser(address)
    try:
        for name, view in views.items():
            for scheme in ("light", "dark"):
                for form, width in WIDTHS.items():
                    shoot(chrome, view, FOLDER / f"{name}-{form}{scheme}.webp", scheme, width)
    finally:
        chrome.driver.quit()


def shoot(chrome: Browser, view: str, file: Path, scheme: str, width: int) -> None:
    """Write a picture of a view to `file`. It is as high as the view, at most HEIGHT_MAX pixels."""
    features: list[Any] = [{"name": "prefers-color-scheme", "value": scheme}]
    chrome.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chrome.size(width, 600)
    chrome.go(view)
    chrome.wait(lambda: chrome.driver.execute_script("return document.readyState") == "complete")
    height = chrome.driver.execute_script("return document.documentElement.scrollHeight")
    chrome.size(width, min(height, HEIGHT_MAX))
    taken = chrome.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "webp", "quality": QUALITY}
    )
    file.write_bytes(base64.b64decode(taken["data"]))


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Cluster(nodes=3, data=Path(folder) / "shop") as c:
        async with page(Path(folder), "--data", "shop") as address, load(c.bootstrap):
            await asyncio.sleep(SETTLED_S)
            node = await asyncio.to_thread(c.leader, "orders", 1)
            await asyncio.to_thread(c.kill, node)
            await asyncio.sleep(SETTLED_S)
            await asyncio.to_thread(c.start, node)
            await asyncio.sleep(SECONDS_BEFORE)
            await asyncio.to_thread(take, address, VIEWS)
    with tempfile.TemporaryDirectory() as folder:
        await prove(Path(folder) / "invoices")
        async with page(Path(folder), "invoices") as address:
            await asyncio.to_thread(take, address, RUN)
    size = sum(file.stat().st_size for file in FOLDER.iterdir())
    assert size <= BYTES_MAX, f"{size:,} bytes of pictures are too many"


if __name__ == "__main__":
    asyncio.run(main())
