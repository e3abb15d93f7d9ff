"""Test every view in a real browser against three nodes under load and faults."""

# Selenium is in the extra test-ui only.
# pyright: reportMissingImports=false

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Consumer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.ports import is_refused

pytest.importorskip("selenium", reason="the extra test-ui is not installed")
pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from selenium.webdriver.common.by import By

from .agreement import Beside, Shown, Told, number, read, telling
from .barriers import barriers, out_of_reach
from .chromium import CHROMIUM, DRIVER, Browser
from .screenshots import load, page

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="there is no chromium here"),
    pytest.mark.filterwarnings("ignore"),  # selenium's own
    pytest.mark.in_turn,
    pytest.mark.cluster,
]
HELD = "nightly-import"
WRITERS, GROUPS = ("checkout-1", "checkout-2"), ("billing", "reports")
KEY = ("orders", 1)
DONE_S = 60
FIRST = 40  # offset of payments/0: both writers have aborted something in the 50 records from there


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, data=tmp_path / "shop") as running:
        yield running


LINES = """
  const lines = (e) => [...e.querySelectorAll("code")].map((code) => code.textContent);
  return [...document.querySelectorAll("details")].map((e) => [e.innerText, lines(e)]);
"""
TABLE, OPEN = "Partitions of orders", "Open transactions"


class Views:
    """Compare each view in a browser with the brokers' answers."""

    def __init__(self, chrome: Browser, told: Told) -> None:
        self._chrome, self._told = chrome, told

    async def beside(
        self, address: str, shows: Callable[[Shown], Any] | None = None
    ) -> tuple[Shown, Beside]:
        shown = await asyncio.to_thread(read, self._chrome, address, shows)
        return shown, await self._told.beside(shown)

    async def all_agree(self, states: dict[int, str]) -> None:
        """Compare all views. `states` has the expected state of each node, in the page's words."""
        await self.now(states)
        await self.topics()
        await self.partition()
        await self.transactions()
        await self.groups()
        shown = await asyncio.to_thread(read, self._chrome, "/faults", None)
        rows = shown.rows("Nodes", "Node")
        assert {int(n): row["State"].split()[-1] for n, row in rows.items()} == states

    async def now(self, states: dict[int, str]) -> None:
        def nodes(shown: Shown) -> dict[int, dict[str, str]]:
            return {int(row["Node"].split()[0]): row for row in shown.tables.get("Nodes", ())}

        def settled(shown: Shown) -> bool:
            found = {n: row["State"].split()[-1] for n, row in nodes(shown).items()}
            return found == states and HELD in shown.rows("Open transactions", "Transactional id")

        shown, both = await self.beside("/", settled)
        for node, row in nodes(shown).items():
            both.was("cluster", lambda c, n=node: c["led"][n], number(row["Leads"]))
            if row["Role"] == "controller":
                both.was("cluster", lambda c: c["controller"], node)
            if states[node] in ("down", "fenced"):
                both.was("cluster", lambda c, n=node: n in c["fenced"], True)
        both.was("cluster", lambda c: len(c["partitions"]), number(shown.facts["partitions"]))
        held = shown.rows("Open transactions", "Transactional id")[HELD]
        assert held["State"] == "◐ Ongoing"
        named = [each for each in held["Partitions"].split() if "/" in each]  # four, and how many
        both.was("transactions", lambda t: partitions_of(t.get(HELD))[: len(named)], named)

    async def topics(self) -> None:
        shown, both = await self.beside("/topics", lambda s: all_told(s, "Topics", "Offsets"))
        for topic, row in shown.rows("Topics", "Topic").items():
            if topic not in ("orders", "payments", "audit"):
                continue
            both.was("cluster", lambda c, t=topic: not_in_sync(c, t), words_of(row["In sync"]))
            both.rises("offsets", lambda o, t=topic: total(o["ends"], t), row["Offsets"])
        shown, both = await self.beside(
            "/topics/orders", lambda s: all_told(s, TABLE, "Last stable", "High watermark")
        )
        rows = shown.rows(TABLE, "Partition")
        assert sorted(map(int, rows)) == list(range(6))
        for index, row in rows.items():
            key = ("orders", int(index))
            both.was("cluster", lambda c, k=key: leader(c, k), row["Leader"])
            both.was("cluster", lambda c, k=key: isr(c, k), in_sync(row["In sync"]))
            both.rises("offsets", lambda o, k=key: o["ends"][k], row["High watermark"])
            both.rises("offsets", lambda o, k=key: o["stable"][k], row["Last stable"])

    async def partition(self) -> None:
        address = f"/topics/{KEY[0]}/{KEY[1]}"
        shown, both = await self.beside(address, lambda s: HELD in s.rows(OPEN, "Owner"))
        both.was("cluster", lambda c: leader(c, KEY), shown.facts["leader"])
        epoch = number(shown.facts["leader epoch"])
        both.was("cluster", lambda c: c["partitions"][KEY].leader_epoch, epoch)
        both.rises("offsets", lambda o: o["ends"][KEY], shown.facts["high watermark"])
        both.rises("offsets", lambda o: o["stable"][KEY], shown.facts["last stable offset"])
        held = shown.rows(OPEN, "Owner")[HELD]
        who = int(held["Producer"]), int(held["Epoch"])
        both.was("transactions", lambda t: identity(t.get(HELD)), who)
        (first,) = {  # the offset does not change while the transaction is open
            each.first_offset
            for each in (await self._told.admin.transactions.producers([KEY]))[KEY]
            if each.producer_id == who[0]
        }
        assert number(held["Since offset"]) == first == number(shown.facts["last stable offset"])
        for row in shown.tables["Readers"]:
            both.rises("groups", lambda g, n=row["Group"]: committed(g, n), row["Committed"])
        said = {
            int(r["Replica"].split()[1]) for r in shown.tables["Replicas"] if "● in" in r["ISR"]
        }
        both.was("cluster", lambda c: isr(c, KEY), tuple(sorted(said)))

    async def transactions(self) -> None:
        wanted = {HELD, *WRITERS}
        shown, both = await self.beside("/transactions", lambda s: wanted <= ids(s).keys())
        for name in wanted:
            coordinator, row = ids(shown)[name]
            both.was("transactions", lambda t, n=name: coordinator_of(t.get(n)), coordinator)
            both.was("transactions", lambda t, n=name: producer_of(t.get(n)), int(row["Producer"]))
            both.rises("transactions", lambda t, n=name: t[n].producer_epoch, row["Epoch"])
        assert ids(shown)[HELD][1]["State"] == "◐ Ongoing"
        shown, both = await self.beside(f"/transactions/{HELD}")
        who = int(shown.facts["producer id"]), int(shown.facts["epoch"])
        both.was("transactions", lambda t: identity(t.get(HELD)), who)
        coordinator = int(shown.facts["coordinator"].removeprefix("node "))
        both.was("transactions", lambda t: coordinator_of(t.get(HELD)), coordinator)
        said = sorted(row["Partition"] for row in shown.tables["Participants"])
        both.was("transactions", lambda t: partitions_of(t.get(HELD)), said)

    async def groups(self) -> None:
        shown, both = await self.beside(
            "/groups", lambda s: set(GROUPS) <= s.rows("Groups", "Group").keys()
        )
        for name in GROUPS:
            row = shown.rows("Groups", "Group")[name]
            both.was("groups", lambda g, n=name: g[n][0].state, words_of(row["State"]))
            both.was("groups", lambda g, n=name: len(g[n][0].members), number(row["Members"]))
            both.was("groups", lambda g, n=name: f"node {g[n][0].coordinator}", row["Coordinator"])
        shown, both = await self.beside(
            "/groups/billing", lambda s: all_told(s, "Offsets", "Last stable", "End")
        )
        for row in shown.tables["Offsets"]:
            topic, _, index = row["Partition"].rpartition("/")
            key = (topic, int(index))
            if row["Committed"] != "-":
                both.rises("groups", lambda g, k=key: committed(g, "billing", k), row["Committed"])
            both.rises("offsets", lambda o, k=key: o["stable"][k], row["Last stable"])
            both.rises("offsets", lambda o, k=key: o["ends"][k], row["End"])
        said = sorted(row["Member"] for row in shown.tables["Members"])
        both.was("groups", lambda g: sorted(m.member_id for m in g["billing"][0].members), said)

    async def records(self, bootstrap: str) -> None:
        """Compare the shown records of payments/0 with reads at both isolation levels."""
        address = f"/topics/payments/0/records?offset={FIRST}&isolation=read_uncommitted"
        shown = await asyncio.to_thread(read, self._chrome, address, None)
        rows = [r for r in shown.tables["Records"] if not r["Outcome"].endswith("marker")]
        assert len(rows) > 10
        last = number(rows[-1]["Offset"])
        seen = {number(r["Offset"]): r["Value"] for r in rows}
        assert seen == await read_by(bootstrap, "read_uncommitted", last)
        ended = {"committed", "aborted"}
        fates = {number(r["Offset"]): r["Outcome"].split(" ", 1)[1] for r in rows}
        known = [offset for offset, fate in fates.items() if fate in ended]
        committed_ones = await read_by(bootstrap, "read_committed", max(known))
        assert {n for n in known if fates[n] == "committed"} == committed_ones.keys() & set(known)
        assert {fates[n] for n in known} == ended, fates

    def timeline(self, cluster: Cluster) -> list[dict[str, str]]:
        """Assert that each log line in the view Timeline is in the log of a node.

        Return the events that the view shows.
        """
        shown = read(self._chrome, "/timeline")
        found = self._chrome.driver.execute_script(LINES)
        assert len(found) > 10
        logs = [cluster.node(n).log.read_text() for n in cluster.node_ids]
        for node, lines in found:
            assert all(any(line in log for log in logs) for line in lines), (node, lines)
        return list(shown.tables["Events"])


def all_told(shown: Shown, caption: str, *columns: str) -> bool:
    """Return whether the table `caption` has a value in each row of these columns.

    A partition without a leader has no value.
    """
    rows = shown.tables.get(caption, [])
    return bool(rows) and all(row[column] != "-" for row in rows for column in columns)


def leader(cluster: Any, key: tuple[str, int]) -> str:
    node = cluster["partitions"][key].leader
    return f"node {node}" if node >= 0 else "none"


def isr(cluster: Any, key: tuple[str, int]) -> tuple[int, ...]:
    return tuple(sorted(cluster["partitions"][key].isr))


def in_sync(words: str) -> tuple[int, ...]:
    inside = words.partition(" ")[2].partition(" (not")[0].removeprefix("ok ").removeprefix("note ")
    return tuple(sorted(int(each) for each in inside.split(", ")))


def words_of(state: str) -> str:
    """Return the text of a state on the page, without the symbol before it (such as ◆)."""
    return state.partition(" ")[2]


def not_in_sync(cluster: Any, topic: str) -> str:
    found = [p for key, p in cluster["partitions"].items() if key[0] == topic]
    count = sum(len(p.isr) < len(p.replicas) for p in found)
    return f"note {count} not fully" if count else "ok"


def total(offsets: Any, topic: str) -> int:
    return sum(offset for (name, _), offset in offsets.items() if name == topic)


def committed(groups: Any, name: str, key: tuple[str, int] = KEY) -> int:
    return groups[name][1].get(key, 0)


def partitions_of(known: Any) -> list[str]:
    return [] if known is None else sorted(f"{name}/{index}" for name, index in known.partitions)


def identity(known: Any) -> tuple[int, int] | None:
    return None if known is None else (known.producer_id, known.producer_epoch)


def producer_of(known: Any) -> int | None:
    return None if known is None else known.producer_id


def coordinator_of(known: Any) -> int | None:
    return None if known is None else known.coordinator


def ids(shown: Shown) -> dict[str, tuple[int, dict[str, str]]]:
    """Return the rows of the view Transactions by id, each with its coordinator's node id."""
    return {
        row["Transactional id"]: (int(caption.rpartition(" ")[2]), row)
        for caption, rows in shown.tables.items()
        for row in rows
    }


async def read_by(bootstrap: str, isolation: str, last: int) -> dict[int, str]:
    """Return the values of payments/0 by offset, from FIRST to `last`, at this isolation level."""
    found: dict[int, str] = {}
    config = {"bootstrap.servers": bootstrap, "isolation.level": isolation}
    async with Consumer(config) as consumer, asyncio.timeout(60):
        consumer.assign({("payments", 0): FIRST})
        while max(found, default=-1) < last:
            found |= {r.offset: (r.value or b"").decode() for r in await consumer.poll(500)}
    return {offset: value for offset, value in found.items() if offset <= last}


def do(chrome: Browser, fault: str, proof: str) -> str:
    """Press a fault's button in the view Faults, wait for `proof`, and return the page's text.

    `proof` is the text with which the page proves the effect of the fault.
    """
    chrome.go("/faults")
    button = f"[aria-label='{fault}']" if fault != "heal" else "[value=heal] + button"
    chrome.wait(lambda: chrome.driver.find_elements(By.CSS_SELECTOR, button))
    chrome.driver.execute_script("document.querySelector(arguments[0]).click()", button)
    chrome.wait(lambda: proof in chrome.text() or "Not done" in chrome.text(), DONE_S)
    assert proof in chrome.text(), chrome.text()
    return chrome.text()


def open_a_line(chrome: Browser) -> None:
    """Open a log line in the view Timeline by a key.

    Assert that it stays open and focused when the view is updated.
    """
    chrome.go("/timeline")
    script = "const e = document.querySelector('summary'); e?.focus(); return e !== null"
    chrome.wait(lambda: chrome.driver.execute_script(script))
    chrome.driver.switch_to.active_element.send_keys(" ")
    chrome.driver.execute_script("document.querySelector('#events').dataset.old = 1")
    is_new = "return document.querySelector('#events').dataset.old === undefined"
    chrome.wait(lambda: chrome.driver.execute_script(is_new))
    script = "const e = document.activeElement; return [e.tagName, e.parentElement.open]"
    assert chrome.driver.execute_script(script) == ["SUMMARY", True]


async def test_ui_views_under_load_and_faults_equal_the_answers_of_the_protocol(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with (
        page(tmp_path, "--data", "shop") as address,
        load(cluster.bootstrap) as work,
        telling(cluster.bootstrap) as told,
    ):
        chrome = await asyncio.to_thread(Browser, address)
        try:
            await visit(cluster, Views(chrome, told), chrome)
            assert [task for task in work if task.done()] == [], "the load has ended early"
        finally:
            await asyncio.to_thread(chrome.driver.quit)


async def visit(cluster: Cluster, views: Views, chrome: Browser) -> None:
    everyone: dict[int, str] = dict.fromkeys(range(1, 4), "serves")
    await views.all_agree(everyone)

    leader_id = await asyncio.to_thread(cluster.leader, *KEY)
    pid, port = cluster.node(leader_id).find(), cluster.file.entry(leader_id).port
    assert pid is not None
    words = await asyncio.to_thread(do, chrome, f"kill node {leader_id}", "was killed")
    assert f"its pid {pid.pid} is gone" in words and is_refused(port)
    await views.all_agree({**everyone, leader_id: "down"})
    await asyncio.to_thread(do, chrome, f"start node {leader_id}", "serves again")
    await asyncio.to_thread(cluster.wait_for_isr, "orders")

    controller = await asyncio.to_thread(cluster.controller)
    await asyncio.to_thread(do, chrome, f"pause node {controller}", "is in state T")
    await views.all_agree({**everyone, controller: "paused"})
    await asyncio.to_thread(do, chrome, "heal", "all links work")
    await asyncio.to_thread(cluster.wait_for_isr, "orders")

    away = await asyncio.to_thread(cluster.leader, *KEY)
    await asyncio.to_thread(do, chrome, f"cut node {away}", "is cut off from node")
    others = (cluster.file.entry(n) for n in everyone if n != away)
    majority = ",".join(f"{each.host}:{each.port}" for each in others)
    async with telling(majority) as told:  # the node that is away answers with leaders of before
        await Views(chrome, told).all_agree({**everyone, away: "fenced"})
    await asyncio.to_thread(do, chrome, "heal", "all links work")
    await asyncio.to_thread(cluster.wait_for_isr, "orders")

    slow = next(n for n in everyone if n not in (leader_id, controller))
    await asyncio.to_thread(do, chrome, f"slow node {slow}", "200 ms")
    await views.all_agree(everyone)
    assert await asyncio.to_thread(barriers, chrome) == []
    assert await asyncio.to_thread(lambda: list(out_of_reach(chrome))) == []
    await asyncio.to_thread(do, chrome, "heal", "all links work")

    await views.records(cluster.bootstrap)
    await asyncio.to_thread(open_a_line, chrome)
    events = await asyncio.to_thread(views.timeline, cluster)
    for kind, words in (
        ("broker", f"node {leader_id}"), ("broker", f"node {controller}"), ("controller", "node"),
        ("fault", f"node {away}"), ("fault", f"node {slow}"),
        ("election", "orders"), ("isr", "orders"),
    ):  # fmt: skip
        assert any(e["Kind"] == kind and words in e["What"] for e in events), (kind, words)
