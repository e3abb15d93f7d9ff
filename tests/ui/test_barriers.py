"""Test that every view can be used without a mouse, by a screen reader and without colours."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import asyncio
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest

from oncelog.client import Producer

from ..awaiting import until

pytest.importorskip("selenium", reason="the extra test-ui is not installed")
pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from .barriers import barriers, out_of_reach
from .chromium import CHROMIUM, DRIVER, Browser
from .test_browser import VIEWS, browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no chromium here"),
    pytest.mark.filterwarnings("ignore"),  # selenium's own
]
OTHERS = ("/faults", "/topics/nothing", "/timeline?minutes=5", "/topics/orders/0/records?offset=x")


async def no_fault(fields: Mapping[str, str]) -> str:
    """Inject nothing, in place of a fault. With such a function, the page has the view Faults."""
    return f"{dict(fields)}"


PLANTED = """
  <title>planted</title><style>*:focus { outline: none }</style>
  <a href="/x"></a> <button style="color: silver">Look</button> <a href="/y" tabindex="-1">y</a>
  <table><tr><th></th><td>1</td></tr></table> <input><svg role="img"><title>drawn</title>
  <a href="/z"><text y="9">z</text></a></svg> <span class="state bad">red</span>
  <main><a href="/u" style="text-decoration: none">u</a></main>
"""


@pytest.mark.in_turn
async def test_ui_views_have_no_accessibility_barrier(tmp_path: Path) -> None:
    def look(chrome: Browser) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for address in (*VIEWS, *OTHERS):
            for width in (390, 1280):
                chrome.size(width, 900)
                chrome.go(address)
                found[f"{address} {width}"] = barriers(chrome)
            found[address] = list(out_of_reach(chrome))
        return {address: each for address, each in found.items() if each}

    async with browser(tmp_path, can_write=True) as (opened, chrome, _):
        opened.site.fault = no_fault
        newer = Producer({"bootstrap.servers": opened.bootstrap, "transactional.id": "app-2"})
        await newer.init_transactions()
        await newer.close()
        await until(lambda: len(opened.site.facts.samples) > 2, 30)
        assert await asyncio.to_thread(look, chrome) == {}


async def test_barrier_check_of_a_planted_page_reports_each_barrier(tmp_path: Path) -> None:
    def look(chrome: Browser) -> list[str]:
        chrome.driver.get(f"data:text/html,{quote(PLANTED)}")
        return [*barriers(chrome), *out_of_reach(chrome)]

    async with browser(tmp_path) as (_, chrome, _):
        found = await asyncio.to_thread(look, chrome)
    kinds = {words.partition(": ")[0] for words in found}
    assert kinds == {
        "no name", "colour alone", "pale in light", "pale in dark", "focus is not seen",
        "not by Tab",
    }, found  # fmt: skip
    without_name = [words for words in found if words.startswith("no name")]
    for role in ("link", "textbox", "link z is in a picture"):
        assert any(words.startswith(f"no name: {role}") for words in without_name), role
    assert sum(words.startswith("colour alone") for words in found) == 2
