"""The rows of `oncelog top`, with the nodes and a list below them, without I/O.

The lag of a group in a partition is counted at the node that leads the partition. LAG is the
distance of committed offsets from the end of the log, and LSO-LAG from the last stable offset,
where read_committed consumers stop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..wire.identifiers import TopicPartition
from ..wire.printable import printable
from . import documents
from .facts import ClusterFacts

COLUMNS = ("NODE", "ROLE", "LEADERS", "LAG", "LSO-LAG", "TRANSACTIONS")
SORTS = ("NODE", "LEADERS", "LAG", "LSO-LAG", "TRANSACTIONS")
LISTS = ("transactions", "groups", "partitions", "troubles")
WIDTH_MIN = 20
Row = Mapping[str, Any]
Lines = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Choice:
    """The user's choice of sort column, list and filter."""

    sort: str = "NODE"
    shown: str = "transactions"
    filter: str = ""


def node_rows(facts: ClusterFacts, now_ms: int, sort: str = "NODE") -> list[dict[str, Any]]:
    """Return a row for each node, sorted by the column `sort`.

    Node ids are ascending, and the values of any other column descending.
    """
    lags: dict[int, int] = {}
    stable_lags: dict[int, int] = {}
    for group in documents.groups(facts, now_ms)["groups"]:
        for each in group["offsets"]:
            leader = _leader(facts, (each["topic"], each["partition"]))
            if each["lag"] is not None and each["lag_to_last_stable"] is not None:
                lags[leader] = lags.get(leader, 0) + each["lag"]
                stable_lags[leader] = stable_lags.get(leader, 0) + each["lag_to_last_stable"]
    opened = [t for t in facts.transactions.values() if t.state in documents.OPEN]
    rows = [
        {
            "NODE": node["node"],
            "ROLE": node["state"] if node["state"] != "serves" else _role(node),
            "LEADERS": node["leaders"],
            "LAG": lags.get(node["node"], 0),
            "LSO-LAG": stable_lags.get(node["node"], 0),
            "TRANSACTIONS": sum(t.coordinator == node["node"] for t in opened),
        }
        for node in documents.cluster(facts, now_ms)["nodes"]
    ]
    return rows if sort == "NODE" else sorted(rows, key=lambda row: -row[sort])


def plain_table(rows: Sequence[Row], width: int | None) -> str:
    """Return rows as text, with numbers on the right. A narrow width drops columns on the right.

    The column of the node is always shown.
    """
    cells = [COLUMNS, *(tuple(str(row[name]) for name in COLUMNS) for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(COLUMNS))]
    kept = len(COLUMNS)
    while width is not None and kept > 1 and sum(widths[:kept]) + 2 * (kept - 1) > width:
        kept -= 1
    lines = [
        "  ".join(
            cell.ljust(wide) if at == 1 else cell.rjust(wide)
            for at, (cell, wide) in enumerate(zip(line[:kept], widths[:kept], strict=True))
        ).rstrip()
        for line in cells
    ]
    return "\n".join(lines)


def listed(facts: ClusterFacts, now_ms: int, choice: Choice) -> tuple[tuple[str, ...], Lines]:
    """Return the headings of the chosen list, and its lines that contain the chosen filter."""
    headings, lines = _LISTS[choice.shown](facts, now_ms)
    wanted = choice.filter.lower()
    found = [tuple(map(printable, line)) for line in lines]
    return headings, [line for line in found if wanted in " ".join(line).lower()]


def _transactions(facts: ClusterFacts, now_ms: int) -> tuple[tuple[str, ...], Lines]:
    found = documents.transactions(facts, now_ms)["transactions"]
    return ("ID", "STATE", "OPEN S", "ENDS S", "PARTITIONS"), [
        (
            each["transactional_id"],
            each["state"],
            f"{each['age_ms'] / 1000:.0f}",
            "-" if each["ends_in_ms"] is None else f"{each['ends_in_ms'] / 1000:.0f}",
            str(len(each["partitions"])),
        )
        for each in found
        if each["age_ms"] is not None
    ]


def _groups(facts: ClusterFacts, now_ms: int) -> tuple[tuple[str, ...], Lines]:
    found = documents.groups(facts, now_ms)["groups"]
    found.sort(key=lambda each: -(each["lag"] or 0))
    return ("GROUP", "STATE", "MEMBERS", "LAG", "LSO-LAG"), [
        (
            each["group"],
            each["state"],
            str(len(each["members"])),
            _text(each["lag"]),
            _text(each["lag_to_last_stable"]),
        )
        for each in found
    ]


def _partitions(facts: ClusterFacts, now_ms: int) -> tuple[tuple[str, ...], Lines]:
    found = documents.partitions(facts, now_ms)["partitions"]
    found.sort(key=lambda each: -each["held_back"])
    return ("PARTITION", "LEADER", "LSO", "HW", "HELD BACK"), [
        (
            f"{each['topic']}/{each['partition']}",
            _text(each["leader"]),
            _text(each["last_stable"]),
            _text(each["high_watermark"]),
            str(each["held_back"]),
        )
        for each in found
    ]


def _troubles(facts: ClusterFacts, now_ms: int) -> tuple[tuple[str, ...], Lines]:
    found = documents.cluster(facts, now_ms)["troubles"]
    return ("STATE", "ABOUT", "FOUND"), [
        (each["state"], each["about"], each["found"]) for each in found
    ]


_LISTS = {
    "transactions": _transactions,
    "groups": _groups,
    "partitions": _partitions,
    "troubles": _troubles,
}


def _role(node: Row) -> str:
    return "controller" if node["is_controller"] else "broker"


def _leader(facts: ClusterFacts, key: TopicPartition) -> int:
    known = facts.partitions.get(key)
    return known.leader if known is not None else -1


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)
