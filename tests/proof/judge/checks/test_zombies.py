"""Test check A4, by which a producer commits nothing after an acknowledged fence."""

from ..small_history import OK, SmallHistory


def _initialized(story: SmallHistory, process: int, *, producer_id: int = -1, epoch: int = -1):
    handle = story.recorder.initialize_invoked(process, "payments")
    story.recorder.initialize_ended(handle, OK, producer_id=producer_id, epoch=epoch)


def test_commit_requested_after_its_fence_is_reported_as_a_zombie_write() -> None:
    story = SmallHistory()
    _initialized(story, 1, producer_id=7, epoch=0)
    old = story.recorder.begin(1, "payments", 7, 0)
    story.sent(5, "t/0", 0, within=old)
    _initialized(story, 3, producer_id=7, epoch=1)  # aborts the open transaction, or waits
    story.ended(old)
    story.scanned("t/0", (0, 5))
    story.end("t/0", 1)
    story.polled("t/0", (0, 5))
    assert story.names() == {"zombie-write"}


def test_commit_of_a_library_without_producer_ids_is_checked_against_the_fence() -> None:
    story = SmallHistory()
    _initialized(story, 1)
    _initialized(story, 3)
    old = story.recorder.begin(1, "payments")
    story.sent(5, "t/0", 0, within=old)
    story.ended(old)
    story.polled("t/0", (0, 5))
    assert story.names() == {"zombie-write"}


def test_commit_requested_before_its_fence_may_succeed() -> None:
    for identity in ({}, {"producer_id": 7, "epoch": 0}):
        story = SmallHistory()
        _initialized(story, 1, **identity)
        old = story.recorder.begin(1, "payments")
        story.sent(5, "t/0", 0, within=old)
        story.recorder.commit_invoked(old)
        _initialized(story, 3, **{name: 7 for name in identity})
        story.recorder.transaction_ended(old, OK)
        story.polled("t/0", (0, 5))
        assert story.names() == set()
