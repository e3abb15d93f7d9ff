"""Test that a scraper of metrics cannot block the broker or other scrapers."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest

from oncelog.node.metrics import server
from oncelog.node.metrics.figures import Figures
from oncelog.node.metrics.server import MetricsPage
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.steps import Steps

pytest.importorskip("prometheus_client", reason="the extra metrics is not installed")
WAIT_S = 20


class Pages:
    """A source of metrics that counts how often they are collected."""

    def __init__(self, series: int = 1) -> None:
        self.series = series
        self.made = 0

    def taking(self) -> Steps[Figures]:
        self.made += 1
        figures = Figures()
        for number in range(self.series):
            figures.add("oncelog_raft_term", 1.0, number)
            if number % 1_000 == 0:
                yield
        return figures


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[int]:
    """Run a metrics server, and yield its port."""
    work, executor = SlicedWork(), ThreadPoolExecutor(1)
    page = MetricsPage(0, pages.taking, work.clients, executor)
    await page.start()
    try:
        yield page.port
    finally:
        await page.stop()


async def asked(port: int, line: str = "GET /metrics HTTP/1.1", host: str = "") -> str:
    """Return the whole HTTP answer, or "" if the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{line}\r\nHost: {host or f'127.0.0.1:{port}'}\r\n\r\n".encode())
        async with asyncio.timeout(WAIT_S):
            return (await reader.read()).decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


async def test_metrics_page_is_served_only_for_its_path_and_host_names() -> None:
    async with serving(Pages()) as port:
        assert "oncelog_raft_term" in await asked(port)
        assert "oncelog_raft_term" in await asked(port, host=f"localhost:{port}")
        assert "oncelog_raft_term" in await asked(port, "GET /metrics?name=x HTTP/1.1")
        assert (await asked(port, host="evil.example")).startswith("HTTP/1.1 403")
        assert (await asked(port, "GET / HTTP/1.1")).startswith("HTTP/1.1 404")
        assert (await asked(port, "POST /metrics HTTP/1.1")).startswith("HTTP/1.1 404")


async def test_metrics_scrapes_at_the_same_time_share_a_page() -> None:
    pages = Pages(5_000)
    async with serving(pages) as port:
        answers = await asyncio.gather(*(asked(port) for _ in range(server.CONNECTIONS_MAX)))
        assert all(answer.endswith("# EOF\n") for answer in answers)
        assert pages.made == 1


async def test_metrics_scrape_that_comes_later_gets_a_new_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SHARED_S", 0.0)
    pages = Pages()
    async with serving(pages) as port:
        await asked(port)
        await asked(port)
    assert pages.made == 2


async def test_metrics_connections_beyond_the_limit_are_closed_immediately() -> None:
    async with serving(Pages()) as port:
        silent = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(server.CONNECTIONS_MAX)
        ]
        assert await asked(port) == ""
        silent.pop()[1].close()
        async with asyncio.timeout(WAIT_S):
            while "oncelog_raft_term" not in await asked(port):
                pass
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost"])
async def test_metrics_scraper_that_is_silent_is_closed_at_its_deadline(
    sent: bytes, monkeypatch
) -> None:
    monkeypatch.setattr(server, "EXCHANGE_S", 0.05)
    async with serving(Pages()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_metrics_scraper_that_reads_nothing_delays_no_other_scraper(monkeypatch) -> None:
    pages = Pages(server.SENT_AT_ONCE)  # some megabytes: more than the sockets take
    async with serving(pages) as port:
        slow = [
            await asyncio.open_connection("127.0.0.1", port, limit=1_024)
            for _ in range(server.CONNECTIONS_MAX - 1)
        ]
        for _, writer in slow:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % port)
        assert (await asked(port)).endswith("# EOF\n")
        for _, writer in slow:
            writer.close()


async def test_metrics_request_with_a_long_head_is_refused() -> None:
    async with serving(Pages()) as port:
        assert await asked(port, host="x" * 2 * server.HEAD_BYTES_MAX) == ""


async def test_metrics_page_that_fails_is_answered_and_built_again_for_the_next_scrape() -> None:
    class Failing(Pages):
        def taking(self) -> Steps[Figures]:
            self.made += 1
            raise RuntimeError("a defect")

    pages = Failing()
    async with serving(pages) as port:
        for _ in range(2):
            assert (await asked(port)).startswith("HTTP/1.1 500")
    assert pages.made == 2


async def test_metrics_server_stop_closes_open_connections() -> None:
    async with serving(Pages()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0)
    async with asyncio.timeout(WAIT_S):
        assert await reader.read() == b""
    writer.close()
