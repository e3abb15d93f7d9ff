"""The view of topics, and the view of one partition, without I/O."""

from collections.abc import Mapping
from typing import Any

from ...proof.pages.markup import Child, Html, element, joined
from ...proof.pages.parts import (
    as_of,
    clock,
    duration,
    explanation,
    facts,
    link,
    more,
    number,
    section,
    size,
    state,
    table,
)
from ..addresses import (
    group_address,
    partition_address,
    records_address,
    topic_address,
    transaction_address,
)
from .frame import PageFrame, page
from .strips import strips

Document = Mapping[str, Any]
TOPICS_MAX = READERS_MAX = 500
PARTITIONS_MAX = 500  # shown for a topic; requests of its JSON reach all of them


def topics_page(frame: PageFrame, topics: Document) -> str:
    """Return the view of all topics, with internal topics last."""
    listed = sorted(topics["topics"], key=lambda each: (each["is_internal"], each["topic"]))
    rows = [
        [
            link(topic_address(each["topic"]), each["topic"]),
            number(each["partitions"]),
            number(each["replication_factor"]),
            _replicas(each),
            number(each["records"]),
            number(each["held_back"]),
            number(each["open_transactions"]),
        ]
        for each in listed[:TOPICS_MAX]
    ]
    headings = (
        "Topic",
        "Partitions",
        "Replicas",
        "In sync",
        "Offsets",
        "Held back",
        "Open transactions",
    )
    body = table("Topics", headings, rows, numbers=(1, 2, 4, 5, 6))
    words = more(len(listed) - TOPICS_MAX, "/api/topics")
    since = as_of("Offsets count from the log starts", topics["log_starts_as_of_ms"])
    return page(frame, "Topics", section("topics", "All topics", body, words, since))


def _replicas(topic: Document) -> Html:
    if topic["leaderless"]:
        return joined(state("bad"), f" {topic['leaderless']} without leader")
    if topic["under_replicated"]:
        return joined(state("note"), f" {topic['under_replicated']} not fully")
    return state("ok")


def topic_page(frame: PageFrame, topic: str, partitions: Document) -> str:
    """Return the view of one topic."""
    found = partitions["partitions"]
    rows = [
        [
            link(partition_address((topic, each["partition"])), str(each["partition"])),
            "none" if each["leader"] is None else f"node {each['leader']}",
            _isr(each),
            number(each["log_start"]),
            number(each["last_stable"]),
            number(each["high_watermark"]),
            number(each["held_back"]),
            number(len(each["open_transactions"])),
            link(records_address((topic, each["partition"])), "records"),
        ]
        for each in found[:PARTITIONS_MAX]
    ]
    headings = (
        "Partition",
        "Leader",
        "In sync",
        "Log start",
        "Last stable",
        "High watermark",
        "Held back",
        "Open",
        "Look",
    )
    body = table(f"Partitions of {topic}", headings, rows, numbers=(0, 3, 4, 5, 6, 7))
    words = more(len(found) - PARTITIONS_MAX, "/api/partitions")
    since = as_of(
        "Log starts are requested every 10 s. These are", partitions["log_starts_as_of_ms"]
    )
    return page(frame, topic, section("partitions", "Partitions", body, words, since))


def _isr(row: Document) -> Html:
    nodes = ", ".join(str(r["node"]) for r in row["replicas"] if r["in_isr"])
    away = [str(r["node"]) for r in row["replicas"] if not r["in_isr"]]
    return joined(state("note" if away else "ok"), " ", nodes or "none", _without(away))


def _without(away: list[str]) -> str:
    return f" (not {', '.join(away)})" if away else ""


def partition_page(frame: PageFrame, found: Document) -> str:
    """Return the view of one partition. `found` is the result of `documents.partition`."""
    (row,) = found["partitions"]
    key = (row["topic"], row["partition"])
    heading = joined(link(topic_address(key[0]), key[0]), f"/{key[1]}")
    leader = row["leader"]
    sections = (
        section("why", "Why readers are blocked", explanation(row["why"])),
        section(
            "strips",
            "Where everything stands",
            strips(row),
            facts(
                [
                    ("leader", "none" if leader is None else f"node {leader}"),
                    ("leader epoch", number(row["leader_epoch"])),
                    (
                        "min.insync.replicas",
                        _aged(row["min_insync_replicas"], found["min_insync_replicas_as_of_ms"]),
                    ),
                    ("log start", _aged(row["log_start"], found["log_starts_as_of_ms"])),
                    ("last stable offset", number(row["last_stable"])),
                    ("high watermark", number(row["high_watermark"])),
                    ("held back", number(row["held_back"])),
                ]
            ),
            element("p", link(records_address(key), "Records of this partition")),
            about="Filled: committed readers may read it. Hatched: held back by what is open.",
        ),
        _open(row, can_write=frame.can_write),
        _readers(row),
        _replicas_of(row, found["replicas_as_of_ms"]),
    )
    return page(frame, f"{key[0]}/{key[1]}", *sections, heading=heading)


def _open(row: Document, *, can_write: bool) -> Html:
    headings = ["Owner", "Producer", "Epoch", "Since offset", "Open for", "Aborted in", "Wrote"]
    rows = [_holder(each) for each in row["open_transactions"]]
    hanging = [each for each in row["open_transactions"] if each["is_hanging"]]
    forms = [_abort_form(row, each) for each in hanging] if can_write else []
    body = table("Open transactions", headings, rows, numbers=(1, 2, 3, 4, 5))
    return section("open", "Open here", body, forms)


def _holder(holder: Document) -> list[Child]:
    name = holder["transactional_id"]
    owner: Child = link(transaction_address(name), name) if name else "unknown to coordinators"
    if holder["is_hanging"]:
        owner = joined(owner, " ", state("bad"), " hangs")
    ends = holder["ends_in_ms"]
    wrote = holder["last_write_ms"]
    return [
        owner,
        str(holder["producer_id"]),
        str(holder["epoch"]),
        number(holder["first_offset"]),
        duration(holder["age_ms"]),
        "never by itself" if ends is None else duration(ends),
        "-" if wrote is None else clock(wrote),
    ]


def _abort_form(row: Document, holder: Document) -> Html:
    producer = holder["producer_id"]
    field = f"confirm-{producer}"
    return element(
        "form",
        element("input", type="hidden", name="topic", value=row["topic"]),
        element("input", type="hidden", name="partition", value=row["partition"]),
        element("input", type="hidden", name="producer_id", value=producer),
        element("label", f"To write an abort marker, type {producer}: ", for_=field),
        element("input", id=field, name="confirm", required=True, autocomplete="off"),
        element("button", f"Abort what producer {producer} has open here"),
        method="post",
        action="/abort",
    )


def _readers(row: Document) -> Html:
    rows = [
        [
            link(group_address(each["group"]), each["group"]),
            state(each["state"]),
            number(each["committed"]),
            number(each["lag_to_last_stable"]),
            number(each["lag"]),
            _reading(each),
        ]
        for each in row["groups"][:READERS_MAX]
    ]
    headings = ("Group", "State", "Committed", "Lag to last stable", "Lag to end", "Reads")
    body = table("Readers", headings, rows, numbers=(2, 3, 4), empty="no group has committed here")
    words = more(len(row["groups"]) - READERS_MAX, "/api/partitions")
    about = "A reader of committed data can catch up to the last stable offset, and no further."
    return section("readers", "Readers, with both lags", body, words, about=about)


def _reading(reader: Document) -> str:
    lag, stable = reader["lag"], reader["lag_to_last_stable"]
    if lag is None or stable is None:
        return "-"
    if lag == 0:
        return "everything"
    if reader["committed"] > reader["last_stable"]:
        return "what is not committed, too"
    return "all it may: the rest is held back" if stable == 0 else "on"


def _aged(value: int | None, as_of_ms: int) -> Child:
    """Return a number and the time of its request, or the number alone if `as_of_ms` is 0.

    Such a number is requested less often than other numbers of the view.
    """
    return number(value) if not as_of_ms else joined(number(value), " as of ", clock(as_of_ms))


def _replicas_of(row: Document, as_of_ms: int) -> Html:
    rows = [
        [
            f"node {each['node']}",
            "leader" if each["is_leader"] else "follower",
            state("in sync" if each["in_isr"] else "out of sync"),
            number(each["offset_lag"]),
            size(each["size_bytes"]),
        ]
        for each in row["replicas"]
    ]
    headings = ("Replica", "Role", "ISR", "Offsets behind", "Size")
    body = table("Replicas", headings, rows, numbers=(3, 4))
    since = as_of("Offsets behind and sizes are requested every 10 s. These are", as_of_ms)
    return section("replicas", "Replicas", body, since)
