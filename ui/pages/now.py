"""The view Now, with nodes, problems, open transactions, and the last minutes, without I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...proof.pages.markup import NOTHING, Child, Html, element, joined
from ...proof.pages.parts import (
    advice,
    as_of,
    duration,
    facts,
    link,
    more,
    number,
    section,
    size,
    state,
    table,
)
from ..addresses import group_address, partition_address, transaction_address
from ..facts import ClusterSample
from .curves import all_curves, figure
from .frame import PageFrame, page
from .happened import event_rows

TRANSACTIONS_MAX, EVENTS_MAX, TROUBLES_MAX = 20, 12, 100
Document = Mapping[str, Any]


def now_page(
    frame: PageFrame,
    cluster: Document,
    transactions: Document,
    events: Document,
    samples: Sequence[ClusterSample],
) -> str:
    """Return the view Now, which is the first view."""
    return page(
        frame,
        "Now",
        _summary(cluster),
        _troubles(cluster),
        _curves(samples),
        _nodes(cluster),
        _open(transactions),
        recent_events(events, EVENTS_MAX),
    )


def recent_events(events: Document, limit: int, title: str = "What has happened") -> Html:
    """Return a table with the newest events in at most `limit` rows."""
    rows = event_rows(events["events"], limit)
    words = table(title, ("Time", "Kind", "What"), rows, empty="nothing since this page's start")
    return section("events", title, words)


def _summary(cluster: Document) -> Html:
    controller = cluster["controller"]
    return element(
        "section",
        facts(
            [
                ("nodes", number(len(cluster["nodes"]))),
                ("controller", f"node {controller}" if controller is not None else "none"),
                ("topics", number(cluster["topics"])),
                ("partitions", number(cluster["partitions"])),
                ("open transactions", number(cluster["open_transactions"])),
                ("offsets held back", number(cluster["held_back"])),
            ]
        ),
        id="summary",
        data_live=True,
        aria_label="Summary",
    )


def _troubles(cluster: Document) -> Html:
    rows = [
        [state(each["state"]), _about(each["about"]), each["found"], advice(each["advice"])]
        for each in cluster["troubles"][:TROUBLES_MAX]
    ]
    body = table(
        "What is wrong",
        ("State", "About", "Found", "Next step"),
        rows,
        empty="● This page sees no problem.",
    )
    words = more(len(cluster["troubles"]) - TROUBLES_MAX, "/api/cluster")
    since = as_of("Groups are compared with log starts", cluster["log_starts_as_of_ms"])
    return section("troubles", "What is wrong", body, words, since)


def _about(words: str) -> Child:
    if words.startswith("transaction "):
        name = words.removeprefix("transaction ")
        return link(transaction_address(name), name)
    if words.startswith("group "):
        return link(group_address(words.removeprefix("group ")), words)
    topic, slash, index = words.rpartition("/")
    if slash and index.isdecimal():
        return link(partition_address((topic, int(index))), words)
    return words


def _curves(samples: Sequence[ClusterSample]) -> Html:
    drawn = [figure(curve) for curve in all_curves(samples)]
    return section("minutes", "The last minutes", element("div", drawn, class_="curves"))


def _nodes(cluster: Document) -> Html:
    is_ours = any("pid" in node for node in cluster["nodes"])
    headings = ["Node", "State", "Role", "Leads", "Out of sync", "Groups", "Answer"]
    headings += ["Memory", "Longest turn", "Faults"] if is_ours else []
    rows = [_node(node, is_ours) for node in cluster["nodes"]]
    body = table("Nodes", headings, rows, numbers=(3, 4, 5, 6, 7, 8), empty="none is known")
    return section("nodes", "Nodes", body)


def _node(node: Document, is_ours: bool) -> list[Child]:
    replicas = number(node["out_of_sync"])
    row: list[Child] = [
        joined(str(node["node"]), element("small", node["address"] or "")),
        state(node["state"]),
        "controller" if node["is_controller"] else "broker",
        number(node["leaders"]),
        f"{replicas} of {number(node['replicas'])}",
        number(node["groups"]),
        f"{number(node['answer_ms'])} ms",
    ]
    if is_ours:
        loop = node.get("loop") or {}
        longest = loop.get("longest_ms")
        row += [
            size(node.get("rss_bytes")),
            "-" if longest is None else f"{number(longest)} ms",
            node.get("faults") or node.get("disk") or "none",
        ]
    return row


def _open(transactions: Document) -> Html:
    opened = [each for each in transactions["transactions"] if each["age_ms"] is not None]
    rows = [
        [
            link(transaction_address(each["transactional_id"]), each["transactional_id"]),
            state(each["state"]),
            duration(each["age_ms"]),
            ends_words(each),
            partition_links(each["partitions"]),
        ]
        for each in opened[:TRANSACTIONS_MAX]
    ]
    left = len(opened) - TRANSACTIONS_MAX
    words = element("p", link("/transactions", f"and {left} more")) if left > 0 else NOTHING
    headings = ("Transactional id", "State", "Open for", "Aborted in", "Partitions")
    body = table("Open transactions", headings, rows, numbers=(2, 3))
    return section("open", "Open transactions, oldest first", body, words)


def ends_words(transaction: Document) -> str:
    """Return text with the time until the coordinator aborts a transaction, or why it does not."""
    if transaction["ends_in_ms"] is not None:
        return duration(max(0, transaction["ends_in_ms"]))
    return "never by itself" if transaction["state"] == "Ongoing" else "it is decided"


def partition_links(keys: Sequence[Document], limit: int = 4) -> Html:
    """Return links to at most `limit` partitions, and how many more there are."""
    links: list[Child] = []
    for each in keys[:limit]:
        key = (each["topic"], each["partition"])
        links += [link(partition_address(key), f"{key[0]}/{key[1]}"), " "]
    left = len(keys) - limit
    return joined(links, f"and {left} more" if left > 0 else "", "none yet" if not keys else "")
