"""Test that events of a cluster on this machine are read from the logs of its nodes."""

import asyncio
import re
from pathlib import Path

from oncelog.deploy.inspect.logged_events import EventLogs, event_in
from oncelog.ui import documents
from oncelog.ui.facts import ClusterEvent
from oncelog.ui.logged import cluster_event
from oncelog.ui.observer import Observer
from oncelog.ui.pages.happened import event_rows
from oncelog.ui.pages.strips import SHAPES, strips
from oncelog.ui.pages.timeline import timeline_page

from .known_facts import KEY, NOW_MS, facts
from .test_bounds import FRAME

START = "2026-11-28 22:02:22.528 INFO oncelog.events:"
ELECTION = f'{START} election {{"topic": "orders", "partition": 2}} orders/2: led by node 1'


def event_of(line: str) -> ClusterEvent:
    found = event_in(line, 3)
    assert found is not None
    return cluster_event(found)


def test_event_links_to_the_view_with_its_details() -> None:
    assert event_of(ELECTION).address == "/topics/orders/2"
    fence = f'{START} fence {{"transactional_id": "app-1", "topic": "t", "partition": 1}} fenced'
    assert event_of(fence).address == "/transactions/app-1"
    assert event_of(f'{START} group {{"group": "g"}} rebalances').address == "/groups/g"
    assert event_of(f'{START} topic {{"topic": "t", "reason": "created"}} t').address == "/topics/t"
    assert event_of(f'{START} topic {{"topic": "t", "reason": "deleted"}} t').address == "/"
    assert event_of(f'{START} topic {{"topic": 7, "partition": "x"}} odd').address == "/"


def test_timeline_event_shows_the_log_line_of_its_node_escaped() -> None:
    markup = ELECTION + "<script>alert(1)</script>"
    known = facts(events=(event_of(markup),))
    found = documents.events(known, NOW_MS)
    (row,) = found["events"]
    assert (row["node"], row["line"]) == (3, markup)
    text = timeline_page(FRAME, found, NOW_MS)
    assert "<summary>node 3</summary>" in text and "oncelog.events: election" in text
    assert "<script>alert" not in text


def test_similar_events_of_many_partitions_are_shown_as_one_row() -> None:
    start, node = START.replace("22.528", "{}.000"), '"reason": "fenced", "node": 2'
    lines = [
        f'{start.format(20 + at)} isr {{"subject": "t/{n}", "topic": "t", "partition": {n},'
        f' {node}, "isr": [1, 3]}} node 2 left the ISR of t/{n}'
        for n, at in enumerate((0, 0, 0, 1, 1, 9))
    ]
    events = documents.events(facts(events=tuple(map(event_of, lines))), NOW_MS)["events"]
    late, early = event_rows(events, 10)
    assert "node 2 left the ISR of t/5" in str(late[2])
    text = str(early[2])
    assert text.startswith("node 2 left the ISR (fenced): ") and text.endswith("and 1 more")
    assert text.count('href="/topics/t/') == 4
    assert len(event_rows(events, 1)) == 1


def test_partition_drawing_fits_a_screen_and_a_phone() -> None:
    (row,) = documents.partition(facts(), KEY, NOW_MS, 2)["partitions"]
    for shape in SHAPES:
        drawn = (
            str(strips(row)).partition(f'class="wide on-{shape.name}"')[2].partition("</svg>")[0]
        )
        places = [float(x) for x in re.findall(r' (?:x|x1|x2|cx)="([0-9.]+)"', drawn)]
        assert min(places) >= 0 and shape.width - 20 < max(places) <= shape.width
        assert f"url(#hatch-{shape.name})" in drawn


def test_events_of_two_nodes_are_listed_by_their_time() -> None:
    events = (ClusterEvent(2, "isr", "b", "later"), ClusterEvent(1, "isr", "a", "earlier"))
    found = documents.events(facts(events=events), NOW_MS)
    assert [each["sentence"] for each in found["events"]] == ["later", "earlier"]


async def test_observer_with_node_logs_shows_their_events(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text(ELECTION + "\n")
    observer = Observer({"bootstrap.servers": "127.0.0.1:9"}, EventLogs({3: log}))
    observer.start({})
    try:
        async with asyncio.timeout(20):
            while not observer.facts.events:
                await observer.changed(1.0)
            with log.open("a") as file:
                file.write(f"{START} topic {{}} second\n")
            while len(observer.facts.events) < 2:
                await observer.changed(1.0)
        assert [e.sentence for e in observer.facts.events] == [
            "orders/2: led by node 1",
            "second",
        ]
    finally:
        await observer.close()
