"""The metrics page of one broker at the path /metrics, on loopback.

A connection serves one request. The bytes, the duration and the number of connections are limited,
so that scrapers cannot block the broker. One page is built at a time, in steps on the event loop.
Scrapers that connect during these steps, or shortly after, share the page.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor

from ...runtime.sliced_work import WorkLine
from ...runtime.steps import Steps
from .figures import Figures

HOST, PATH = "127.0.0.1", "/metrics"
HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 8
EXCHANGE_S = 10.0  # the limit from the connection to the last byte of the answer
SHARED_S = 0.5  # how long a page is shared with other scrapers
SENT_AT_ONCE = 64 * 1024


class MetricsPage:
    """The HTTP server of the metrics page.

    taking: returns the steps that collect the metrics.
    """

    def __init__(
        self, port: int, taking: Callable[[], Steps[Figures]], work: WorkLine, executor: Executor
    ) -> None:
        self.port = port
        self._taking = taking
        self._work = work
        self._executor = executor
        self._server: asyncio.Server | None = None
        self._exchanges = set[asyncio.Task[None]]()
        self._page: asyncio.Task[bytes] | None = None
        self._made_s = float("-inf")

    async def start(self) -> None:
        """Start to accept HTTP connections.

        Raises OSError if the port is in use, and ValueError if prometheus_client is not installed.
        """
        loop = asyncio.get_running_loop()
        self._page_of, self._type = await loop.run_in_executor(self._executor, _renderer)
        self._server = await asyncio.start_server(
            self._accept, HOST, self.port, limit=HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop the HTTP server, and close all connections."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._exchanges, *([] if self._page is None else [self._page])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._executor.shutdown(wait=False)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._exchanges) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._exchange(reader, writer))
        self._exchanges.add(task)
        task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        try:
            with contextlib.suppress(*gone):
                async with asyncio.timeout(EXCHANGE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    answer = memoryview(await self._answer(head.decode("latin-1").split("\r\n")))
                    for start in range(0, len(answer), SENT_AT_ONCE):
                        writer.write(answer[start : start + SENT_AT_ONCE])
                        await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _answer(self, lines: list[str]) -> bytes:
        """Return the HTTP answer with the metrics page, or with an error.

        Only requests with this server's own Host header get the page.
        """
        hosts = {line[5:].strip().lower() for line in lines if line.lower().startswith("host:")}
        if not hosts or not hosts <= {f"{HOST}:{self.port}", f"localhost:{self.port}"}:
            return _plain("403 Forbidden")
        method, _, rest = lines[0].partition(" ")
        if method != "GET" or rest.partition(" ")[0].partition("?")[0] != PATH:
            return _plain("404 Not Found")
        try:
            page = await self._shared_page()
        except Exception as error:  # an error of the page must not affect the broker
            return _plain("500 Internal Server Error", repr(error))
        return _head("200 OK", self._type, len(page)) + page

    async def _shared_page(self) -> bytes:
        now_s = asyncio.get_running_loop().time()
        if self._page is None or (self._page.done() and now_s - self._made_s > SHARED_S):
            self._page = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._page)

    async def _make(self) -> bytes:
        page = await self._work.run("metrics", self._making())
        self._made_s = asyncio.get_running_loop().time()
        return page

    def _making(self) -> Steps[bytes]:
        figures = yield from self._taking()
        return (yield from self._page_of(figures))


def _renderer() -> tuple[Callable[[Figures], Steps[bytes]], str]:
    try:
        from .page import CONTENT_TYPE_LATEST, page_of
    except ImportError:
        raise ValueError(
            "oncelog.metrics.port needs the extra metrics: pip install '.[metrics]' in a checkout"
        ) from None
    return page_of, CONTENT_TYPE_LATEST


def _plain(status: str, words: str = "") -> bytes:
    body = f"{status}: {words or f'the page is at {PATH}'}\n".encode()
    return _head(status, "text/plain; charset=utf-8", len(body)) + body


def _head(status: str, content_type: str, size: int) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {size}",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
