"""The view of a partition's records, with the outcome of their transactions, without I/O."""

from collections.abc import Mapping
from typing import Any

from ...proof.pages.markup import NOTHING, Child, Html, element, joined
from ...proof.pages.parts import clock, facts, link, number, section, state, table
from ..addresses import partition_address, records_address, transaction_address
from .frame import PageFrame, page

Document = Mapping[str, Any]
GLYPHS = {
    "committed": "✓",
    "committed, held back": "◑",
    "aborted": "✕",
    "open": "◐",
    "not known": "?",
    "not transactional": "·",
}


def records_page(frame: PageFrame, found: Document, owners: Mapping[int, str]) -> str:
    """Return the view of a partition's records.

    `owners` has the known transactional ids by producer id.
    """
    key = (found["topic"], found["partition"])
    heading = joined("Records of ", link(partition_address(key), f"{key[0]}/{key[1]}"))
    rows = [_row(each, owners) for each in found["records"]]
    headings = ("Offset", "Time", "Key", "Value", "Headers", "Written by", "Outcome")
    body = table("Records", headings, rows, numbers=(0,), empty=_empty(found))
    return page(
        frame,
        f"Records of {key[0]}/{key[1]}",
        _where(found),
        section("records", f"From offset {number(found['offset'])}", body, _ways(key, found)),
        heading=heading,
    )


def _empty(found: Document) -> str:
    if found["next_offset"] < _until(found):
        return f"no record before offset {number(found['next_offset'])}. Look for later ones"
    return "no record from here on"


def _until(found: Document) -> int:
    is_committed = found["isolation"] == "read_committed"
    return found["last_stable"] if is_committed else found["high_watermark"]


def _where(found: Document) -> Html:
    committed = found["isolation"] == "read_committed"
    form = element(
        "form",
        element("label", "From offset ", for_="offset"),
        element(
            "input",
            id="offset",
            name="offset",
            inputmode="numeric",
            pattern="[0-9]*",
            value=found["offset"],
        ),
        element("label", " or time ", for_="time"),
        element("input", id="time", name="time", type="datetime-local", step="1"),
        element("label", " as ", for_="isolation"),
        element(
            "select",
            element("option", "read_uncommitted", selected=not committed),
            element("option", "read_committed", selected=committed),
            id="isolation",
            name="isolation",
        ),
        element("button", "Look"),
        method="get",
        class_="where",
    )
    known = facts(
        [
            ("log start", number(found["log_start"])),
            ("last stable offset", number(found["last_stable"])),
            ("high watermark", number(found["high_watermark"])),
        ]
    )
    return element("section", form, known, aria_label="Where to look")


def _ways(key: tuple[str, int], found: Document) -> Html:
    isolation = f"&isolation={found['isolation']}"
    back = max(found["log_start"], found["offset"] - 50)
    links = [
        link(records_address(key, found["log_start"]) + isolation, "the first"),
        link(records_address(key, back) + isolation, "earlier"),
        link(records_address(key, found["next_offset"]) + isolation, "later"),
        link(f"{records_address(key)}?isolation={found['isolation']}", "the last"),
    ]
    items = [element("li", each) for each in links]
    return element("nav", element("ul", items, class_="ways"), aria_label="Other records")


def _row(row: Document, owners: Mapping[int, str]) -> list[Child]:
    if row["problem"] is not None:
        fate: Child = joined(state("bad"), f" cannot be read: {row['problem']}")
    elif row["marker"] is not None:
        fate = f"{row['marker']} marker"
    else:
        glyph = element("span", GLYPHS[row["outcome"]], aria_hidden="true")
        kind = row["outcome"].replace(",", "").replace(" ", "-")
        fate = element("span", glyph, " ", row["outcome"], class_=f"outcome {kind}")
    at = row["timestamp_ms"]
    is_record = row["marker"] is None and row["problem"] is None
    return [
        number(row["offset"]),
        "-" if at is None else clock(at),
        _bytes(row["key"]) if is_record else NOTHING,
        _bytes(row["value"]) if is_record else NOTHING,
        [element("div", _bytes(h["name"]), ": ", _bytes(h["value"])) for h in row["headers"]],
        _writer(row, owners),
        fate,
    ]


def _bytes(value: str | None) -> Html:
    if value is None:
        return element("span", "null", class_="null")
    return element("code", value)


def _writer(row: Document, owners: Mapping[int, str]) -> Child:
    producer = row["producer_id"]
    if producer is None:
        return "-"
    words = f"producer {producer}, epoch {row['epoch']}"
    name = owners.get(producer)
    return joined(link(transaction_address(name), name), element("small", words)) if name else words
