"""Test the rows, the column widths and the keys of `oncelog top`."""

from oncelog.ui.top import CTRL_C, ESCAPE, Keys
from oncelog.ui.top_rows import Choice, listed, node_rows, plain_table

from .known_facts import NOW_MS, facts, transaction


def test_top_node_rows_have_the_lags_of_the_partitions_they_lead() -> None:
    rows = node_rows(facts(), NOW_MS)
    assert rows[0] == {
        "NODE": 1, "ROLE": "controller", "LEADERS": 1, "LAG": 20, "LSO-LAG": 0, "TRANSACTIONS": 1,
    }  # fmt: skip
    assert [row["LAG"] for row in rows] == [20, 0, 0]


def test_top_node_rows_sorted_by_a_column_begin_with_the_largest() -> None:
    known = {n: transaction(n, coordinator=3) for n in ("a", "b")}
    rows = node_rows(facts(transactions=known), NOW_MS, "TRANSACTIONS")
    assert [row["NODE"] for row in rows] == [3, 1, 2]


def test_top_plain_table_has_its_columns_in_order_within_the_width() -> None:
    rows = node_rows(facts(), NOW_MS)
    whole = plain_table(rows, 80).splitlines()
    assert whole[0].split() == ["NODE", "ROLE", "LEADERS", "LAG", "LSO-LAG", "TRANSACTIONS"]
    assert whole[1].split() == ["1", "controller", "1", "20", "0", "1"]
    assert plain_table(rows, None) == plain_table(rows, 80)
    for width in range(20, 81):
        lines = plain_table(rows, width).splitlines()
        assert len(lines) == 4
        assert max(map(len, lines)) <= width


def test_top_lists_show_only_rows_that_contain_the_filter() -> None:
    known = {name: transaction(name) for name in ("app-1", "job\x1b[31m")}
    headings, lines = listed(facts(transactions=known), NOW_MS, Choice())
    assert headings[0] == "ID"
    assert len(lines) == 2
    assert "\x1b" not in str(lines)
    _, found = listed(facts(transactions=known), NOW_MS, Choice(filter="JOB"))
    assert [line[0][:3] for line in found] == ["job"]
    for shown in ("groups", "partitions", "troubles"):
        _, lines = listed(facts(), NOW_MS, Choice(shown=shown))
        assert len(lines) == 1, shown


def test_top_keys_sort_nodes_switch_and_filter_the_list_and_quit() -> None:
    keys = Keys()
    for key in "s\t":
        keys.press(key)
    assert keys.choice == Choice("LEADERS", "groups")
    for key in "/apq\x7f\r":
        keys.press(key)
    assert (keys.choice.filter, keys.is_typing, keys.is_over) == ("ap", False, False)
    keys.press(ESCAPE)
    assert keys.choice.filter == ""
    keys.press("/")
    keys.press(CTRL_C)
    assert keys.is_over
