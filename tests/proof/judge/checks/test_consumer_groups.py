"""Test checks G1 to G3.

A partition has one owner at a time, epochs do not decrease, and commits come from owners.
"""

import pytest

from oncelog.proof.judge.history.rows import Handle

from ..small_history import FAIL, OK, OpOutcome, SmallHistory


class Members:
    """A history of members 7 and 8 of a group with one partition."""

    def __init__(self) -> None:
        self.story = SmallHistory()
        self.story.sent(1, "in/0", 0)
        self.story.scanned("in/0", (0, 1))
        self.story.polled("in/0", (0, 1))
        self.story.end("in/0", 1)

    def takes(
        self, process: int, epoch: int = 1, asked_ns: int | None = None, given_ns: int | None = None
    ) -> Handle:
        recorder = self.story.recorder
        asked_ns = asked_ns or given_ns or recorder.now_ns()
        given = asked_ns, given_ns or recorder.now_ns()
        return recorder.tenure_begun(process, "g", "in/0", f"m{process}", epoch, given)

    def is_heard(self, tenure: Handle) -> None:
        """Record an answered heartbeat that confirms the ownership."""
        self.story.recorder.tenure_confirmed(tenure, self.story.recorder.now_ns())

    def is_told(self, process: int, epoch: int, said: int) -> None:
        said_ns = self.story.recorder.now_ns()
        row = process, "g", f"m{process}", said, epoch, said_ns
        self.story.recorder.add("member_epochs", *row, self.story.recorder.now_ns())

    def commits(self, process: int, outcome: OpOutcome = OK, epoch: int = 1) -> None:
        row = self.story.recorder.group_commit_invoked(process, "g", epoch, "in/0", 5)
        self.story.recorder.group_commit_ended(row, outcome, 1)

    def names(self) -> set[str]:
        return self.story.names()


def test_partition_assigned_while_its_owner_still_sends_heartbeats_is_reported_as_held_twice() -> (
    None
):
    members = Members()
    first = members.takes(7)
    members.is_heard(first)
    members.takes(8)
    assert members.names() == set(), "the first one may have been silent since"
    members.is_heard(first)
    assert members.names() == {"held-twice"}


def test_partition_passed_between_members_has_one_owner_at_a_time() -> None:
    members = Members()
    for process in (7, 8, 7):
        tenure = members.takes(process)
        members.is_heard(tenure)
        members.story.recorder.tenure_ended(tenure)
    assert members.names() == set()


def test_late_poll_of_a_stopped_member_is_no_second_owner() -> None:
    """The answer to the poll shows that the member's session ended while it was stopped."""
    members = Members()
    given_ns = members.story.recorder.now_ns()
    second = members.takes(7, epoch=2)
    late = members.takes(8, given_ns=given_ns)
    members.is_heard(second)
    members.commits(7, epoch=2)
    members.story.recorder.tenure_ended(late)
    assert members.names() == set()


def test_late_answer_to_a_stopped_member_is_no_second_owner() -> None:
    members = Members()
    asked_ns = members.story.recorder.now_ns()
    second = members.takes(7, epoch=2)
    late = members.takes(8, asked_ns=asked_ns)
    members.is_heard(second)
    members.commits(7, epoch=2)
    members.story.recorder.tenure_ended(late)
    assert members.names() == set()


def test_partition_owned_by_two_members_with_heartbeats_is_reported_as_held_twice() -> None:
    members = Members()
    asked_ns = members.story.recorder.now_ns()
    first = members.takes(7)
    second = members.takes(8, asked_ns=asked_ns)
    members.is_heard(second)
    members.is_heard(first)
    assert members.names() == {"held-twice"}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ([(7, 3, 0), (7, 3, 3), (7, 4, 3)], set()),
        ([(7, 3, 0), (7, 2, 3)], {"member-epoch-fell"}),
        ([(7, 3, 0), (8, 4, 0), (7, 3, 3)], set()),  # the member still has a partition to give up
        ([(7, 3, 0), (8, 2, 0)], {"member-epoch-fell"}),
        ([(7, 3, 0), (7, 1, 0)], {"member-epoch-fell"}),
    ],
)
def test_epoch_of_a_group_member_below_an_earlier_one_is_reported(
    told: list[tuple[int, int, int]], found: set[str]
) -> None:
    members = Members()
    for each in told:
        members.is_told(*each)
    assert members.names() == found


def test_group_join_that_began_earlier_may_get_a_lower_epoch() -> None:
    members = Members()
    said_ns = members.story.recorder.now_ns()
    members.is_told(7, 3, 0)
    row = 8, "g", "m8", 0, 2, said_ns, members.story.recorder.now_ns()
    members.story.recorder.add("member_epochs", *row)
    assert members.names() == set()


@pytest.mark.parametrize(
    ("outcome", "found"), [(OK, {"fenced-commit"}), (FAIL, set()), (OpOutcome.INFO, set())]
)
def test_commit_accepted_after_a_successor_took_the_partition_is_reported(
    outcome: OpOutcome, found: set[str]
) -> None:
    members = Members()
    members.takes(7)
    members.commits(7)
    members.takes(8, epoch=2)
    members.commits(7, outcome)
    assert members.names() == found


def test_commit_of_a_member_that_got_its_partition_back_is_accepted() -> None:
    members = Members()
    for process, epoch in ((7, 1), (8, 2), (7, 3)):
        members.takes(process, epoch)
    members.commits(7, epoch=3)
    assert members.names() == set()


def test_commit_with_an_epoch_before_the_partition_returned_is_reported() -> None:
    members = Members()
    for process, epoch in ((7, 1), (8, 2), (7, 3)):
        members.takes(process, epoch)
    members.commits(7, epoch=1)
    assert members.names() == {"fenced-commit"}


def test_transactional_offsets_committed_by_a_fenced_member_are_reported() -> None:
    members, story = Members(), None
    story = members.story
    members.takes(7)
    members.takes(8, epoch=2)
    begun = story.recorder.begin(7, "t", 1, 0)
    now_ns = story.recorder.now_ns()
    story.recorder.add("offset_commits", begun.number, 7, "g", "in/0", 0, 1, now_ns, OpOutcome.INFO)
    story.ended(begun)
    assert "fenced-commit" in members.names()
