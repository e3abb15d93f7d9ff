"""Test check J3, in which the log decides a transaction with an unknown outcome."""

import pytest

from oncelog.proof.judge.history.schema import Marker

from ..small_history import INFO, SmallHistory


def _story(marker: Marker, *, other_replica: Marker | None = None) -> set[str]:
    """Return the violations in a history with two records read after a commit timeout.

    `marker` is the marker of their transaction in the log, and `other_replica` that in another
    replica.
    """
    story = SmallHistory()
    transaction = story.recorder.begin(1, "payments", 7, 0)
    for at in (0, 1):
        story.sent(at, "t/0", at, within=transaction)
    story.ended(transaction, INFO)
    story.sent(9, "t/0", 3)
    story.polled("t/0", (0, 0), (1, 1), (3, 9))
    story.scanned("t/0", (0, 0), (1, 1), (3, 9))
    story.end("t/0", 4)
    for replica, kind in enumerate((marker, other_replica)):
        for at in (0, 1) if kind is not None else ():
            story.batch("t/0", at, replica=replica, producer_id=7, epoch=0, sequence=at,
                        is_transactional=True)  # fmt: skip
        if kind is not None:
            story.batch("t/0", 2, replica=replica, producer_id=7, epoch=1, marker=kind)
            story.batch("t/0", 3, replica=replica)
    return story.names() - {"nothing-succeeded"}


def test_record_aborted_by_timeout_and_read_is_an_aborted_read() -> None:
    assert _story(Marker.ABORT) == {"G1a"}


@pytest.mark.parametrize("other", [None, Marker.COMMIT])
def test_record_of_a_commit_without_an_answer_may_be_read(other: Marker | None) -> None:
    assert _story(Marker.COMMIT, other_replica=other) == set()


def test_record_aborted_on_one_replica_only_is_no_aborted_read() -> None:
    assert "G1a" not in _story(Marker.ABORT, other_replica=Marker.COMMIT)
