"""The view of all transactional ids, and the view of one id, without I/O."""

from collections.abc import Mapping
from typing import Any

from ...proof.pages.markup import Html, element
from ...proof.pages.parts import (
    duration,
    explanation,
    facts,
    link,
    more,
    number,
    section,
    state,
    table,
)
from ..addresses import partition_address, transaction_address
from .frame import PageFrame, page
from .now import partition_links, recent_events

Document = Mapping[str, Any]
ROWS_MAX = 500
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "CompleteCommit",
    "PrepareAbort",
    "CompleteAbort",
)


def transactions_page(frame: PageFrame, transactions: Document) -> str:
    """Return the view of all transactional ids, by coordinator."""
    found = transactions["transactions"]
    shown = found[:ROWS_MAX]
    coordinators = sorted({each["coordinator"] for each in shown})
    parts = [
        _coordinator(node, [e for e in shown if e["coordinator"] == node]) for node in coordinators
    ]
    words = more(len(found) - len(shown), "/api/transactions")
    empty = element("p", "No coordinator knows a transactional id.", class_="empty")
    return page(frame, "Transactions", parts or empty, words)


def _coordinator(node: int, found: list[Document]) -> Html:
    rows = [
        [
            link(transaction_address(each["transactional_id"]), each["transactional_id"]),
            state(each["state"]),
            str(each["producer_id"]),
            str(each["epoch"]),
            duration(each["age_ms"]),
            duration(each["timeout_ms"]) if each["timeout_ms"] is not None else "none",
            partition_links(each["partitions"]) if each["age_ms"] is not None else "-",
        ]
        for each in found
    ]
    headings = (
        "Transactional id",
        "State",
        "Producer",
        "Epoch",
        "Open for",
        "Timeout",
        "Partitions",
    )
    title = f"Coordinated by node {node}"
    body = table(title, headings, rows, numbers=(2, 3, 4, 5))
    return section(f"coordinator-{node}", title, body)


def transaction_page(frame: PageFrame, row: Document, events: Document) -> str:
    """Return the view of one transactional id. `events` are the events about it."""
    name = row["transactional_id"]
    ends = row["ends_in_ms"]
    sections = [
        section("why", "What it is doing", explanation(row["why"])),
        section(
            "machine",
            "State",
            _machine(row["state"]),
            facts(
                [
                    ("coordinator", f"node {row['coordinator']}"),
                    ("producer id", str(row["producer_id"])),
                    ("epoch", str(row["epoch"])),
                    ("open for", duration(row["age_ms"])),
                    ("aborted in", duration(ends) if ends is not None else "-"),
                ]
            ),
        ),
        _participants(row),
        recent_events(events, 50, "Fences and aborts that were seen"),
    ]
    if frame.can_write and row["age_ms"] is not None:
        sections.append(_abort_form(name))
    return page(frame, name, *sections)


def _machine(current: str) -> Html:
    items = [
        element(
            "li",
            name,
            class_="at" if name == current else None,
            aria_current="step" if name == current else None,
        )
        for name in (STATES if current in STATES else (*STATES, current))
    ]
    return element("ol", items, class_="machine", aria_label="States; the current one is marked")


def _participants(row: Document) -> Html:
    holds = {(h["topic"], h["partition"]): h for h in row["holds"]}
    keys = [(p["topic"], p["partition"]) for p in row["partitions"]]
    known = set(keys)
    keys += [key for key in holds if key not in known]
    is_decided = row["state"] in ("PrepareCommit", "PrepareAbort")
    rows = [
        [
            link(partition_address(key), f"{key[0]}/{key[1]}"),
            "marker is missing" if is_decided else "takes part",
            number(holds[key]["first_offset"]) if key in holds else "-",
            number(holds[key]["held_back"]) if key in holds else "-",
        ]
        for key in keys[:ROWS_MAX]
    ]
    headings = ("Partition", "Part", "Open since offset", "Offsets held back")
    body = table("Participants", headings, rows, numbers=(2, 3), empty="no partition")
    words = more(len(keys) - ROWS_MAX, "/api/transactions")
    return section("participants", "Participants", body, words)


def _abort_form(name: str) -> Html:
    form = element(
        "form",
        element("input", type="hidden", name="transactional_id", value=name),
        element("label", "To abort it and fence its producer, type its id: ", for_="confirm"),
        element("input", id="confirm", name="confirm", required=True, autocomplete="off"),
        element("button", "Abort"),
        method="post",
        action="/abort",
    )
    words = element(
        "p",
        "A new session of the id begins: what is open is aborted, and its producer is fenced.",
    )
    return element("section", element("h2", "Abort"), words, form, class_="writes")
