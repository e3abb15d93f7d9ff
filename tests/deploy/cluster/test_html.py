"""What the pages of runs and figures have in common."""

from oncelog.deploy.cluster import html


def test_facts_are_told_without_the_signs_of_python() -> None:
    told = html.facts({"versions": {"oncelog": "1.0", "acks": ["1", "all"]}, "none": None})
    assert "<li>versions: oncelog 1.0, acks 1 all</li>" in told
    assert not set("{}[]'") & set(told)


def test_table_sets_numbers_to_the_right_and_texts_to_the_left() -> None:
    page = html.page("t", "h", html.table(("a", "b", "c"), [("<x>", 1, None), ("y", 2.5, None)]))
    assert "<th>a</th>" in page and '<th class="n">b</th>' in page
    assert "<td>&lt;x&gt;</td>" in page and '<td class="n">2.5' in page
    assert "overflow-x:auto" in page and "viewport" in page
    assert "<th>only</th>" in html.table(("only",), [])
