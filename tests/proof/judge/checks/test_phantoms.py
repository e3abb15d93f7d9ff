"""Test check J3, by which no reader at any isolation level sees a record never sent."""

from oncelog.proof.judge.history.schema import Isolation

from ..small_history import SmallHistory


def test_phantom_record_visible_only_to_read_uncommitted_is_reported() -> None:
    story = SmallHistory()
    story.sent(1, "t/0", 0)
    story.polled("t/0", (0, 1))
    story.scanned("t/0", (0, 1))
    story.scanned("t/0", (0, 1), (1, 77), isolation=Isolation.READ_UNCOMMITTED)
    story.end("t/0", 2)
    assert story.names() == {"phantom-read"}
