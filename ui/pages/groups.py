"""The view of all consumer groups, and the view of one group, without I/O."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...proof.pages.markup import Child, Html, element, joined
from ...proof.pages.parts import facts, link, more, number, section, state, table
from ..addresses import group_address, partition_address, transaction_address
from .frame import PageFrame, page
from .now import recent_events

Document = Mapping[str, Any]
ROWS_MAX = 500


def groups_page(frame: PageFrame, groups: Document) -> str:
    """Return the view of all groups."""
    rows = [
        [
            link(group_address(each["group"]), each["group"]),
            state(each["state"]),
            each["type"] or "-",
            number(len(each["members"])),
            number(each["lag_to_last_stable"]),
            number(each["lag"]),
            _held(each),
            f"node {each['coordinator']}",
        ]
        for each in groups["groups"][:ROWS_MAX]
    ]
    headings = (
        "Group",
        "State",
        "Protocol",
        "Members",
        "Lag to last stable",
        "Lag to end",
        "Stands",
        "Coordinator",
    )
    body = table("Groups", headings, rows, numbers=(3, 4, 5))
    words = more(len(groups["groups"]) - ROWS_MAX, "/api/groups")
    about = "A group without lag to the last stable offset has read all that is committed."
    return page(frame, "Groups", section("groups", "All groups", body, words, about=about))


def _held(group: Document) -> str:
    lag, stable = group["lag"], group["lag_to_last_stable"]
    if not lag or stable is None:
        return "at the end" if lag == 0 else "-"
    if stable == 0:
        return "before open transactions"
    return "behind" if group["members"] else "nobody reads"


def group_page(frame: PageFrame, group: Document, events: Document) -> str:
    """Return the view of one group. `events` are the events about the group."""
    epochs = [("group epoch", number(group["epoch"])), ("assigned", number(group["target_epoch"]))]
    sections = (
        element(
            "section",
            facts(
                [
                    ("state", state(group["state"])),
                    ("protocol", group["type"] or "-"),
                    ("assignor", group["protocol"] or "-"),
                    ("coordinator", f"node {group['coordinator']}"),
                    *(epochs if group["epoch"] is not None else ()),
                    ("lag to last stable", number(group["lag_to_last_stable"])),
                    ("lag to end", number(group["lag"])),
                ]
            ),
            id="summary",
            data_live=True,
            aria_label="Summary",
        ),
        _offsets(group),
        _members(group),
        recent_events(events, 50, "Rebalances that were seen"),
    )
    return page(frame, group["group"], *sections)


def _offsets(group: Document) -> Html:
    rows = [
        [
            _partition(each),
            number(each["committed"]),
            number(each["last_stable"]),
            number(each["end"]),
            number(each["lag_to_last_stable"]),
            number(each["lag"]),
            each["member"] or "nobody",
            _stands(each),
        ]
        for each in group["offsets"][:ROWS_MAX]
    ]
    headings = (
        "Partition",
        "Committed",
        "Last stable",
        "End",
        "Lag to last stable",
        "Lag to end",
        "Member",
        "Stands",
    )
    body = table("Offsets", headings, rows, numbers=(1, 2, 3, 4, 5), empty="nothing is committed")
    words = more(len(group["offsets"]) - ROWS_MAX, "/api/groups")
    return section("offsets", "How far it is, and why", body, words)


def _partition(offset: Document) -> Html:
    key = (offset["topic"], offset["partition"])
    return link(partition_address(key), f"{key[0]}/{key[1]}")


def _stands(offset: Document) -> Child:
    lag, stable = offset["lag"], offset["lag_to_last_stable"]
    if lag is None or stable is None:
        return "nothing committed" if offset["committed"] is None else "-"
    if lag == 0:
        return "at the end"
    if offset["committed"] > offset["last_stable"]:
        return "reads what is not committed, too"
    if stable == 0:
        address = partition_address((offset["topic"], offset["partition"]))
        why, name = link(address, "why"), offset["held_by"]
        if name is None:
            return joined("an open transaction holds the rest: ", why)
        return joined(link(transaction_address(name), name), " holds the rest open: ", why)
    return "behind" if offset["member"] else "nobody reads it"


def _members(group: Document) -> Html:
    rows = [
        [
            each["member_id"],
            each["instance_id"] or "-",
            each["client_id"],
            each["host"],
            number(each["epoch"]),
            number(len(each["partitions"])),
            _waits(each),
        ]
        for each in group["members"][:ROWS_MAX]
    ]
    headings = ("Member", "Instance", "Client", "Host", "Epoch", "Partitions", "Waits")
    body = table("Members", headings, rows, numbers=(4, 5), empty="no consumer reads for it")
    words = more(len(group["members"]) - ROWS_MAX, "/api/groups")
    return section("members", "Members", body, words)


def _waits(member: Document) -> str:
    parts: list[str] = []
    if member["gives_up"]:
        parts.append(f"must still revoke {_names(member['gives_up'])}")
    if member["waits_for"]:
        parts.append(f"waits for {_names(member['waits_for'])}")
    return "; ".join(parts) or "for nothing"


def _names(keys: Sequence[Document], limit: int = 4) -> str:
    names = [f"{key['topic']}/{key['partition']}" for key in keys[:limit]]
    left = len(keys) - limit
    return ", ".join(names) + (f" and {left} more" if left > 0 else "")
