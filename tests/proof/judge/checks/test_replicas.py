"""Test check W2, by which a replica that lost its log differs from the other replicas."""

from ..small_history import SmallHistory


def _three_replicas(story: SmallHistory, *ends: int, in_sync: int = 3, high: int = 4) -> None:
    """Record a partition of four records, and a replica with each log end in `ends`."""
    story.end("t/0", 4, high_watermark=high, in_sync=in_sync)
    for replica, end in enumerate(ends, 1):
        story.end("t/0", end, replica=replica, high_watermark=min(end, high))
        for offset in range(end):
            story.batch("t/0", offset, replica=replica)


def test_in_sync_replica_without_its_log_is_reported() -> None:
    story = SmallHistory()
    _three_replicas(story, 4, 4, 0)
    assert "replica-divergence" in story.names()


def test_in_sync_replica_without_the_end_of_its_log_is_reported() -> None:
    story = SmallHistory()
    _three_replicas(story, 4, 2, 4)
    assert "replica-divergence" in story.names()


def test_high_watermark_checkpoint_that_lags_is_not_reported_as_a_loss() -> None:
    story = SmallHistory()
    story.end("t/0", 4, in_sync=2)
    for replica in (1, 2):
        story.end("t/0", 4, replica=replica, high_watermark=2 * replica)
        for offset in range(4):
            story.batch("t/0", offset, replica=replica)
    assert "replica-divergence" not in story.names()


def test_replica_outside_the_isr_may_lag() -> None:
    story = SmallHistory()
    story.end("t/0", 4, in_sync=1)
    for replica, end in ((1, 4), (2, 0)):
        story.end("t/0", end, replica=replica)
        for offset in range(end):
            story.batch("t/0", offset, replica=replica)
    assert "replica-divergence" not in story.names()
