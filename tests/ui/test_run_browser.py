"""Test the report of a run in a real browser, as a file and from `oncelog ui`."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import asyncio
from pathlib import Path

import pytest

from oncelog.proof.pages.run_folder import keep_report
from oncelog.proof.pages.run_report import RunReport

from ..proof.pages.known_runs import KILL, hostile, violated

pytest.importorskip("selenium", reason="the extra test-ui is not installed")
pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from selenium.webdriver.common.keys import Keys

from .barriers import barriers, out_of_reach
from .chromium import CHROMIUM, DRIVER, Browser
from .test_commands import started

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no chromium here"),
    pytest.mark.filterwarnings("ignore"),  # selenium's own
]


def look(chrome: Browser, address: str, report: RunReport) -> None:
    """Open the report of a run in the widths of a screen and a phone.

    Assert that it fits, has no accessibility barrier, and shows all events of the one record.
    """
    for width in (1280, 390):
        chrome.size(width, 900)
        chrome.driver.get(address)
        assert chrome.driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert chrome.driver.execute_script("return window.name + document.images.length") == "0"
        assert barriers(chrome) == []
        colour = "return getComputedStyle(document.body).fontFamily"
        assert "system-ui" in chrome.driver.execute_script(colour), "the style was refused"
    rows = chrome.driver.execute_script(
        "return [...document.querySelectorAll('#story tbody tr')].map((e) => e.children.length)"
    )
    assert rows == [3] * len(report.story)
    assert chrome.driver.get_log("browser") == []


def go_by_keys(chrome: Browser) -> None:
    """Go to the section "Story of one record" with the keyboard alone."""
    active = chrome.driver.switch_to.active_element
    active.send_keys(Keys.TAB)
    for _ in range(30):
        active = chrome.driver.switch_to.active_element
        if active.text == "Story of one record":
            break
        active.send_keys(Keys.TAB)
    active.send_keys(Keys.ENTER)
    chrome.wait(lambda: chrome.driver.current_url.endswith("#story"))


def visit(files: list[tuple[str, RunReport]], served: str) -> None:
    chrome = Browser(served)
    try:
        look(chrome, chrome.base, violated())
        for words in (violated().verdict, KILL, "kill -9 of node 2", "3.250 s", "at most 30"):
            assert words in chrome.text(), words
        chrome.size(1280, 900)
        go_by_keys(chrome)
        assert list(out_of_reach(chrome)) == []
        for address, report in files:
            look(chrome, address, report)
    finally:
        chrome.driver.quit()


async def test_run_report_from_the_server_and_as_a_file_fits_and_has_no_barrier(
    tmp_path: Path,
) -> None:
    reports = {"run": violated(), "hostile": hostile()}
    files = [(keep_report(r, tmp_path / name).as_uri(), r) for name, r in reports.items()]
    async with started(tmp_path, "ui", "run", "--no-open") as process:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[2]
        await asyncio.to_thread(visit, files, address)
