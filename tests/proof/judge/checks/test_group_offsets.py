"""Test check A6.

Acknowledged commits of members last, and a partition has one owner in a generation.
"""

import pytest

from oncelog.proof.judge.history.outcomes import outcome_of_group_commit

from ..small_history import FAIL, INFO, OK, OpOutcome, SmallHistory


class Readers:
    """A history of a group's commits for one partition."""

    def __init__(self) -> None:
        self.story = SmallHistory()
        self.story.sent(1, "in/0", 0)
        self.story.scanned("in/0", (0, 1))
        self.story.polled("in/0", (0, 1))
        self.story.end("in/0", 1)

    def commit(
        self, offset: int, outcome: OpOutcome = OK, *, generation: int = 1, attempts: int = 1
    ) -> None:
        row = self.story.recorder.group_commit_invoked(7, "readers", generation, "in/0", offset)
        self.story.recorder.group_commit_ended(row, outcome, attempts)

    def owns(self, owner: str, generation: int, *, process: int = 7) -> None:
        row = process, "readers", generation, "in/0", owner, self.story.now_ns
        self.story.recorder.add("ownerships", *row)

    def names(self, stands: int | None = None) -> set[str]:
        if stands is not None:
            self.story.recorder.add("committed", "readers", "in/0", stands, self.story.now_ns)
        return self.story.names()


@pytest.mark.parametrize(("stands", "found"), [(9, set()), (5, {"commit-undone"})])
def test_group_offset_of_an_older_acknowledged_commit_is_reported_as_commit_undone(
    stands: int, found: set[str]
) -> None:
    readers = Readers()
    readers.commit(5)
    readers.commit(9)
    assert readers.names(stands) == found


def test_group_without_an_offset_after_an_acknowledged_commit_is_reported_as_commit_undone() -> (
    None
):
    readers = Readers()
    readers.commit(5)
    assert readers.names(-1) == {"commit-undone"}


def test_group_offset_of_a_failed_commit_is_reported_as_commit_undone() -> None:
    readers = Readers()
    readers.commit(5)
    readers.commit(7, FAIL)
    assert readers.names(7) == {"commit-undone"}


@pytest.mark.parametrize(("outcome", "attempts"), [(INFO, 1), (OK, 2)])
def test_group_offset_of_a_late_request_is_accepted(outcome: OpOutcome, attempts: int) -> None:
    readers = Readers()
    readers.commit(5, outcome, attempts=attempts)
    readers.commit(9)
    assert readers.names(5) == set()


def test_group_offset_of_a_request_of_an_earlier_generation_is_reported() -> None:
    readers = Readers()
    readers.commit(5, INFO)
    readers.commit(9, generation=2)
    assert readers.names(5) == {"commit-undone"}


def test_group_offset_of_a_commit_of_unknown_outcome_in_a_later_generation_is_accepted() -> None:
    readers = Readers()
    readers.commit(9)
    readers.commit(5, INFO, generation=2)
    assert readers.names(5) == set()


def test_group_with_an_unread_final_offset_is_not_judged() -> None:
    readers = Readers()
    readers.commit(5)
    assert readers.names() == set()


def test_partition_owner_changes_only_with_the_generation() -> None:
    readers = Readers()
    readers.owns("one", 3)
    readers.owns("one", 3, process=8)  # a static member that rejoined
    readers.owns("other", 4)
    assert readers.names() == set()
    readers.owns("one", 4)
    assert readers.names() == {"two-owners"}


@pytest.mark.parametrize(
    ("error", "attempts", "outcome"),
    [
        (None, 3, OK),
        (22, 1, FAIL),  # ILLEGAL_GENERATION
        (22, 2, INFO),
        (16, 1, INFO),  # NOT_COORDINATOR: the commit may be in the log all the same
        (15, 0, FAIL),  # no coordinator was found
    ],
)
def test_group_commit_outcome_follows_from_error_and_attempts(
    error: int | None, attempts: int, outcome: OpOutcome
) -> None:
    assert outcome_of_group_commit(error, attempts) is outcome
