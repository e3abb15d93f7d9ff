import pytest

from oncelog.proof.prove.group_view import GroupLook, WatchedGroup, conclusions, group_partition

INPUT, OFFSETS = ("orders", 0), "__consumer_offsets"


@pytest.mark.parametrize(
    ("group", "code"), [("a", 97), ("copiers", 953050081), ("polygenelubricants", -(2**31))]
)
def test_group_partition_in_consumer_offsets_equals_that_of_java(group, code) -> None:
    assert group_partition(group, 50) == (code & 0x7FFFFFFF) % 50


def facts(*looks: GroupLook, **others) -> WatchedGroup:
    values = {"group": "a", "state": "Stable", "members": 1, "offsets_partitions": 50}
    watched = WatchedGroup(**{**values, **others})
    for each in looks:
        watched.see(each)
    return watched


def look(offset: int, **open_ones) -> GroupLook:
    return GroupLook(
        {name: frozenset(places) for name, places in open_ones.items()}, {INPUT: offset}
    )


def test_group_view_names_the_ids_that_commit_the_offsets_and_their_output_topics() -> None:
    other = {("other", 1), (OFFSETS, 3)}
    lines = conclusions(
        facts(look(1, mine={("invoices", 2), (OFFSETS, 97 % 50)}, yours=other),
              min_insync={"invoices": 1})
    )  # fmt: skip
    assert "its offsets are committed in transactions of mine" in lines
    assert "which write invoices" in lines
    assert any(line.startswith("min-insync-1: invoices") for line in lines)
    assert not any("yours" in line for line in lines)


def test_group_view_reports_more_transactional_ids_than_members() -> None:
    both = {name: {(OFFSETS, 47)} for name in ("one", "two")}
    assert any(
        "2 transactional ids for 1 members" in line for line in conclusions(facts(look(1, **both)))
    )


def test_group_view_reports_advancing_offsets_without_an_observed_transaction() -> None:
    assert "no open transaction with them was seen" in conclusions(facts(look(1), look(5)))[1]
    assert ("no open transaction with them was seen") in conclusions(
        facts(look(1), look(5), look(5))
    )[1]
    assert "did not advance" in conclusions(facts(look(5), look(5)))[1]
    assert "did not advance" in conclusions(facts())[1]
