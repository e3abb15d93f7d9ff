"""Test check J5, by which acknowledged records are in the log at the end of a run."""

from ..small_history import SmallHistory


def test_missing_records_that_were_read_earlier_are_reported() -> None:
    story = SmallHistory()
    for number in range(3):
        story.sent(number, "t/0", number)
    story.polled("t/0", (0, 0), (1, 1), (2, 2))
    story.end("t/0", 0)  # the last reading found an empty log
    assert story.names() == {"unseen"}


def test_empty_topic_without_sends_is_not_reported_as_a_loss() -> None:
    story = SmallHistory()
    story.sent(0, "t/0", 0)
    story.polled("t/0", (0, 0))
    story.scanned("t/0", (0, 0))
    story.end("t/0", 1)
    story.end("u/0", 0)
    assert story.names() == set()
