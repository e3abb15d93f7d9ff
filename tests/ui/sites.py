"""A broker, the page's server and its observer of that broker, in the event loop of a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from oncelog.client import Producer
from oncelog.client.admin import Admin
from oncelog.deploy.cluster.lookup import DEFAULT_DATA, ClusterChoice
from oncelog.deploy.cluster.ports import free_ports
from oncelog.ui.observer import Observer
from oncelog.ui.running import end_transaction
from oncelog.ui.web.access import PageAccess
from oncelog.ui.web.app import application
from oncelog.ui.web.server import listening_socket, serve
from oncelog.ui.web.site import Site

from ..awaiting import until
from ..node.own_broker import running

ANSWER_S = 20


@dataclass(slots=True)
class Answer:
    """An HTTP response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Visitor:
    """An HTTP client that sends requests like a browser, and returns the whole response."""

    port: int
    headers: dict[str, str] = field(default_factory=dict[str, str])

    async def get(self, address: str, **headers: str) -> Answer:
        return await self._ask("GET", address, b"", headers)

    async def post(self, address: str, body: str, **headers: str) -> Answer:
        return await self._ask("POST", address, body.encode(), headers)

    async def _ask(
        self, method: str, address: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        sent = {"Host": f"127.0.0.1:{self.port}", **self.headers, **headers}
        if body:
            sent["Content-Length"] = str(len(body))
        lines = [f"{method} {address} HTTP/1.1", *(f"{n}: {v}" for n, v in sent.items())]
        head = "\r\n".join([*lines, "Connection: close", "", ""]).encode()
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(head + body)
            raw = await reader.read()
            writer.close()
            await writer.wait_closed()
        first, _, rest = raw.partition(b"\r\n")
        names, _, text = rest.partition(b"\r\n\r\n")
        found = dict(line.split(": ", 1) for line in names.decode("latin-1").split("\r\n"))
        headers = {name.lower(): value for name, value in found.items()}
        return Answer(int(first.split()[1]), headers, text.decode())


@dataclass(slots=True, kw_only=True)
class OpenSite:
    """A running server of the page, with `visitor` as a client that has the site's cookie."""

    bootstrap: str
    admin: Admin
    site: Site
    visitor: Visitor

    async def open_transaction(self, name: str, topic: str, count: int = 3, **values: str) -> Any:
        """Begin a transaction, write records, and return the producer with the transaction open."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": name, **values}
        producer = Producer(settings)
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(count):
            await producer.send(topic, value=f"{name} {number}".encode(), partition=0)
        await producer.flush()
        return producer

    async def told(self, part: str) -> None:
        """Wait until the server has requested this part of the facts anew."""
        for _ in range(2):
            before = self.site.facts.as_of_ms.get(part)
            await until(lambda b=before: self.site.facts.as_of_ms.get(part) != b)


@asynccontextmanager
async def open_site(root: Path, *, can_write: bool = False) -> AsyncIterator[OpenSite]:
    """Run a broker in this event loop, serve its page, and yield the site."""
    (port,) = free_ports(1)
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "offsets.topic.num.partitions": "2"}
    async with (
        running(root, settings=listeners),
        site_of(f"127.0.0.1:{port}", can_write=can_write) as opened,
    ):
        yield opened


@asynccontextmanager
async def site_of(bootstrap: str, *, can_write: bool = False) -> AsyncIterator[OpenSite]:
    """Serve the page of a running cluster, and yield the site."""
    observer = Observer({"bootstrap.servers": bootstrap})
    observer.start({})
    sock = listening_socket(None)
    access = PageAccess(sock.getsockname()[1])
    site = Site(observer=observer, access=access, cluster_name=bootstrap)
    if can_write:
        choice = ClusterChoice(data=DEFAULT_DATA, bootstrap=bootstrap)
        site.abort = partial(end_transaction, choice, observer)
    is_ready = asyncio.Event()
    serving = asyncio.create_task(serve(application(site), sock, is_ready.set, site.end))
    try:
        await is_ready.wait()
        visitor = Visitor(access.port)
        entered = await visitor.get(f"/?token={access.token}")
        cookie = SimpleCookie(entered.headers["set-cookie"])[access.cookie_name].value
        visitor.headers["Cookie"] = f"{access.cookie_name}={cookie}"
        async with Admin(bootstrap) as admin:
            yield OpenSite(bootstrap=bootstrap, admin=admin, site=site, visitor=visitor)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await observer.close()
        sock.close()
