"""Test that views of large clusters are bounded and report how much is omitted."""

import json
from dataclasses import replace
from typing import Any

import pytest

from oncelog.ui import documents, paging
from oncelog.ui.facts import ClusterFacts
from oncelog.ui.pages.frame import PageFrame
from oncelog.ui.pages.groups import group_page, groups_page
from oncelog.ui.pages.now import now_page
from oncelog.ui.pages.topics import topics_page
from oncelog.ui.pages.transactions import transaction_page
from oncelog.ui.paging import RowRange

from .known_facts import NOW_MS, facts, group, member, partition, transaction

COUNT = 1_500
EVENTS = {"events": ()}
FRAME = PageFrame(address="/", cluster_name="many", now_ms=NOW_MS, as_of_ms=NOW_MS)


def many() -> ClusterFacts:
    """Return the facts of a large cluster. Committed offsets are below the start of the log."""
    keys = [(f"t-{n}", 0) for n in range(COUNT)]
    known = facts()
    first = replace(group("g-0", 1), committed=dict.fromkeys(keys, 1))
    assert first.described is not None
    members = tuple(member(f"m-{n}") for n in range(COUNT))
    first = replace(first, described=replace(first.described, members=members))
    others = {f"g-{n}": group(f"g-{n}", 1) for n in range(1, COUNT)}
    return replace(
        known,
        partitions={key: partition(*key) for key in keys},
        offsets=dict.fromkeys(keys, known.offsets["orders", 0]),
        log_starts=dict.fromkeys(keys, 5),
        groups={"g-0": first, **others},
        transactions={"app-1": transaction(partitions=tuple(keys))},
    )


@pytest.mark.parametrize("view", ["now", "topics", "groups", "group", "transaction"])
def test_view_of_a_large_cluster_has_at_most_500_rows_a_table(view) -> None:
    known = many()
    cluster = documents.cluster(known, NOW_MS)
    transactions = documents.transactions(known, NOW_MS)
    groups = documents.groups(known, NOW_MS)
    (row,) = documents.transaction(known, "app-1", NOW_MS)["transactions"]
    pages = {
        "now": lambda: now_page(FRAME, cluster, transactions, EVENTS, ()),
        "topics": lambda: topics_page(FRAME, documents.topics(known, NOW_MS)),
        "groups": lambda: groups_page(FRAME, groups),
        "group": lambda: group_page(FRAME, groups["groups"][0], EVENTS),
        "transaction": lambda: transaction_page(FRAME, row, EVENTS),
    }
    made = pages[view]()
    assert all(table.count('role="row"') <= 500 for table in made.split("<table")[1:])
    assert "more: see /api/" in made


@pytest.mark.parametrize("name", ["topics", "partitions", "groups", "transactions"])
def test_document_of_a_large_cluster_is_bounded_and_its_pages_have_every_row_once(name) -> None:
    known = many()
    make = {
        "topics": documents.topics,
        "partitions": lambda facts, now_ms, rows: documents.partitions(facts, now_ms, None, rows),
        "groups": documents.groups,
        "transactions": documents.transactions,
    }[name]
    whole = make(known, NOW_MS, documents.ALL)[name]
    start, seen = 0, list[Any]()
    while True:
        found = make(known, NOW_MS, RowRange.asked({"start": str(start)}))
        rows = found[name]
        assert 0 < len(rows) <= 500
        assert len(json.dumps(found)) < 2_000_000
        seen += rows
        start += len(rows)
        if not found["left_out"]:
            break
        assert found["left_out"] == len(whole) - start
    key = {"topics": "topic", "partitions": "topic", "groups": "group"}.get(name, "epoch")
    assert [row[key] for row in seen] == [row[key] for row in whole]


def test_long_lists_in_a_ui_row_are_cut_with_the_number_left_out() -> None:
    (group,) = (g for g in documents.groups(many(), NOW_MS, RowRange(0, 1))["groups"])
    assert (len(group["offsets"]), group["offsets_left_out"]) == (1_000, COUNT - 1_000)
    assert (len(group["members"]), group["members_left_out"]) == (1_000, COUNT - 1_000)


def test_ui_page_of_long_rows_ends_early_with_the_number_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paging, "ITEMS_MAX", 1_500)
    found = documents.groups(many(), NOW_MS, RowRange(0, 500))
    assert (len(found["groups"]), found["left_out"]) == (1, COUNT - 1)


@pytest.mark.parametrize(
    "query", [{"start": "-1"}, {"start": "9" * 20}, {"start": "²"}, {"limit": "0"},
              {"limit": "1001"}, {"limit": "9" * 5_000}, {"limit": "x"}],
)  # fmt: skip
def test_ui_row_range_out_of_bounds_is_refused_with_a_clear_message(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"start is a whole number|limit is 1 to 1000"):
        RowRange.asked(query)


def test_problem_row_of_a_transactional_id_like_a_partition_name_links_to_no_partition() -> None:
    known = facts(transactions={"app/1": transaction("app/1")})
    holder = replace(known.holders["orders", 0][0], transaction=known.transactions["app/1"])
    known = replace(known, holders={("orders", 0): (holder,)})
    found = documents.cluster(known, NOW_MS)
    made = now_page(FRAME, found, documents.transactions(known, NOW_MS), EVENTS, ())
    assert "/topics/transaction" not in made
