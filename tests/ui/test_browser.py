"""Test the page in a real browser, for a broker that runs in the test."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Producer
from oncelog.client.admin import LATEST

from ..awaiting import until

pytest.importorskip("selenium", reason="the extra test-ui is not installed")
pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from selenium.webdriver.common.by import By

from .chromium import CHROMIUM, DRIVER, Browser
from .sites import OpenSite, open_site

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no chromium here"),
    pytest.mark.filterwarnings("ignore"),  # selenium's own
]
VIEWS = (
    "/", "/topics", "/topics/orders", "/topics/orders/0", "/topics/orders/0/records",
    "/transactions", "/transactions/app-1", "/groups", "/groups/readers", "/timeline",
)  # fmt: skip


@asynccontextmanager
async def browser(root: Path, **options: Any) -> AsyncIterator[tuple[OpenSite, Browser, Any]]:
    """Yield a site, a browser that has the site's cookie, and a producer.

    The producer has the transactional id app-1 and an open transaction in orders/0.
    """
    async with open_site(root, **options) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders")
        await opened.admin.groups.commit("readers", {("orders", 0): 0})
        await until(lambda: "readers" in opened.site.facts.groups, 30)
        await until(lambda: ("orders", 0) in opened.site.facts.holders, 30)
        address = f"http://127.0.0.1:{opened.visitor.port}/?token={opened.site.access.token}"
        chrome = await asyncio.to_thread(Browser, address)
        try:
            yield opened, chrome, producer
        finally:
            await asyncio.to_thread(chrome.driver.quit)
            await producer.close()


async def test_ui_token_becomes_a_cookie_that_no_script_can_read(tmp_path: Path) -> None:
    async with browser(tmp_path) as (_, chrome, _):
        (cookie,) = await asyncio.to_thread(chrome.driver.get_cookies)
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert not await asyncio.to_thread(chrome.driver.execute_script, "return document.cookie")


async def test_ui_view_of_each_kind_fits_1280_and_390_pixels_without_an_error(
    tmp_path: Path,
) -> None:
    def look(chrome: Browser) -> None:
        for width in (1280, 390):
            chrome.size(width, 900)
            for address in VIEWS:
                chrome.go(address)
                script = "return document.documentElement.scrollWidth"
                assert chrome.driver.execute_script(script) <= width, (address, width)
                script = "return [...document.querySelectorAll('h1')].map((each) => each.innerText)"
                assert [words != "" for words in chrome.driver.execute_script(script)] == [True]
        assert chrome.driver.get_log("browser") == []

    async with browser(tmp_path) as (_, chrome, _):
        await asyncio.to_thread(look, chrome)


async def test_partition_view_that_is_open_shows_new_records_without_a_reload(
    tmp_path: Path,
) -> None:
    async with browser(tmp_path) as (opened, chrome, producer):
        await asyncio.to_thread(chrome.go, "/topics/orders/0")
        await asyncio.to_thread(chrome.shows, "stop at offset 0. The high watermark is 3.")
        await asyncio.to_thread(chrome.driver.execute_script, "window.here = 1")
        await producer.send("orders", value=b"more", partition=0)
        await producer.flush()
        end = (await opened.admin.list_offsets({("orders", 0): LATEST}))[("orders", 0)]
        await asyncio.to_thread(chrome.shows, f"The high watermark is {end}.")
        await producer.commit_transaction()
        await asyncio.to_thread(chrome.shows, "nothing is open; every offset below 5")
        assert await asyncio.to_thread(chrome.driver.execute_script, "return window.here") == 1


async def test_ui_page_that_is_hidden_closes_its_event_stream(tmp_path: Path) -> None:
    script = """
      Object.defineProperty(document, "hidden", { value: arguments[0], configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    """
    async with browser(tmp_path) as (opened, chrome, _):
        await until(lambda: opened.site.streams == 1, 30)
        await asyncio.to_thread(chrome.driver.execute_script, script, True)
        await until(lambda: opened.site.streams == 0, 30)
        await asyncio.to_thread(chrome.driver.execute_script, script, False)
        await until(lambda: opened.site.streams == 1, 30)


async def test_reason_of_a_stuck_consumer_is_reached_from_the_start_page_in_two_clicks(
    tmp_path: Path,
) -> None:
    def look(chrome: Browser) -> None:
        chrome.go("/")
        chrome.press("Groups")
        chrome.shows("readers")
        chrome.press("readers")
        chrome.shows("app-1 holds the rest open")

    async with browser(tmp_path) as (_, chrome, _):
        await asyncio.to_thread(look, chrome)


async def test_fencing_of_a_producer_is_two_clicks_from_the_start_page(tmp_path: Path) -> None:
    def look(chrome: Browser) -> None:
        chrome.go("/")
        chrome.press("Transactions")
        chrome.shows("app-1")
        chrome.press("app-1")
        chrome.shows("a newer session")

    async with browser(tmp_path) as (opened, chrome, _):
        newer = Producer({"bootstrap.servers": opened.bootstrap, "transactional.id": "app-1"})
        try:
            await newer.init_transactions()
            told = lambda: any(e.kind == "fence" for e in opened.site.facts.events)  # noqa: E731
            await until(told, 30)
            await asyncio.to_thread(look, chrome)
        finally:
            await newer.close()


async def test_events_around_a_time_are_two_clicks_from_the_start_page(tmp_path: Path) -> None:
    def look(chrome: Browser, at: str) -> None:
        chrome.go("/")
        chrome.press("Timeline")
        chrome.wait(lambda: chrome.driver.find_elements(By.ID, "at"))
        chrome.driver.find_element(By.ID, "at").send_keys(at)
        chrome.driver.find_element(By.CSS_SELECTOR, "form.where button").click()
        chrome.shows("closer")
        assert "topic late was created" in chrome.text()
        chrome.press("earlier")
        chrome.shows("later")
        chrome.press("earlier")
        chrome.wait(lambda: "nothing happened then" in chrome.text())

    async with browser(tmp_path) as (opened, chrome, _):
        await opened.admin.create_topic("late", partitions=1)
        told = lambda: [e for e in opened.site.facts.events if e.subject == "late"]  # noqa: E731
        await until(lambda: bool(told()), 30)
        at = time.strftime("%H:%M:%S", time.localtime(told()[0].at_ms / 1000))
        await asyncio.to_thread(look, chrome, at)


async def test_abort_form_ends_the_transaction_only_with_the_typed_id(tmp_path: Path) -> None:
    def abort(chrome: Browser, typed: str, answer: str) -> None:
        chrome.go("/transactions/app-1")
        field = chrome.wait(lambda: chrome.driver.find_element(By.ID, "confirm"))
        field.send_keys(typed)
        chrome.driver.find_element(By.TAG_NAME, "button").click()
        chrome.shows(answer)

    async with browser(tmp_path, can_write=True) as (opened, chrome, _):
        await asyncio.to_thread(abort, chrome, "app", "Not confirmed")
        assert (await opened.admin.transactions.describe("app-1")).state == "Ongoing"
        await asyncio.to_thread(abort, chrome, "app-1", "Done")
        assert (await opened.admin.transactions.describe("app-1")).state != "Ongoing"


async def test_partition_view_elements_are_focusable_and_keep_the_focus_in_an_update(
    tmp_path: Path,
) -> None:
    def walk(chrome: Browser) -> None:
        chrome.go("/topics/orders/0")
        chrome.shows("app-1")
        script = """
          const able = [...document.querySelectorAll("a[href],button,input,select,[tabindex='0']")];
          const named = (e) => e.innerText || e.ariaLabel || e.labels;
          return able.filter((e) => e.tabIndex < 0 || !named(e)).length;
        """
        assert chrome.driver.execute_script(script) == 0
        chrome.driver.execute_script("document.querySelector('#open a').focus()")
        chrome.driver.execute_script("document.querySelector('#open').dataset.old = 1")
        has_new = "return document.querySelector('#open').dataset.old === undefined"
        chrome.wait(lambda: chrome.driver.execute_script(has_new))
        focused = "return document.activeElement.getAttribute('href')"
        assert chrome.driver.execute_script(focused) == "/transactions/app-1"

    async with browser(tmp_path) as (_, chrome, _):
        await asyncio.to_thread(walk, chrome)
