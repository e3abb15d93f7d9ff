"""Test that records removed by the compaction of a partition are not counted as lost."""

from ..small_history import SmallHistory


def _story(*, is_compacted: bool) -> set[str]:
    """Return the violations in a history of four records, two of which are removed at the end."""
    story = SmallHistory()
    transaction = story.recorder.begin(1, "payments", 7, 0)
    for at in range(4):
        story.sent(at, "t/0", at, within=transaction)
    story.ended(transaction)
    story.recorder.assigned(2, 0, "t/0", 0)
    story.polled("t/0", (0, 0), (2, 2), (3, 3))
    story.recorder.add("derivations", 9, "job", "t/0", 0)
    story.sent(9, "u/0", 0)
    story.scanned("u/0", (0, 9))
    story.scanned("t/0", (2, 2), (3, 3))
    story.end("t/0", 5, is_compacted=is_compacted)
    story.end("u/0", 1)
    return story.names()


def test_records_removed_by_compaction_are_not_lost() -> None:
    assert _story(is_compacted=True) == set()


def test_records_missing_from_an_uncompacted_topic_are_lost() -> None:
    lost = {"unseen", "lost-write", "torn-transaction", "int-poll-skip", "input-invisible"}
    assert _story(is_compacted=False) == lost
