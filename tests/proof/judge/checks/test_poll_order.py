"""Test check J6, by which a consumer begins at its assigned offset and skips no record."""

import pytest

from ..small_history import OK, SmallHistory


def _story(*, start: int, first: int, log_start: int = 0) -> set[str]:
    """Return the violations of a consumer assigned to `start` that first gets record `first`."""
    story = SmallHistory()
    for number in range(5):
        story.sent(number, "t/0", number * 2)
    story.recorder.assigned(2, 0, "t/0", start)
    story.polled("t/0", *((number * 2, number) for number in range(first, 5)))
    story.scanned("t/0", *((number * 2, number) for number in range(log_start, 5)))
    story.end("t/0", 10, start=log_start * 2)
    return story.names()


def test_first_poll_of_a_session_may_not_skip_records() -> None:
    assert _story(start=2, first=2) == {"poll-skip"}


def test_first_poll_of_a_session_may_not_begin_before_its_start() -> None:
    assert _story(start=4, first=1) == {"nonmonotonic-poll"}


@pytest.mark.parametrize("start", [0, 1, 2, -1])
def test_poll_that_starts_after_offsets_without_values_is_legal(start: int) -> None:
    assert _story(start=start, first=max(0, (start + 1) // 2)) == set()


def test_poll_that_skips_deleted_records_is_legal() -> None:
    assert _story(start=2, first=3, log_start=3) == set()


def test_poll_after_an_aborted_first_transaction_that_skips_its_inputs_is_reported() -> None:
    story = SmallHistory()
    for number in range(4):
        story.sent(number, "t/0", number)
    story.recorder.assigned(2, 0, "t/0", 0)
    for outcome, found in ((2, (0, 1)), (OK, (2, 3))):
        transaction = story.recorder.begin(2, "reader")
        call, handle = story.recorder.poll_invoked(2, transaction)
        returned_ns = story.recorder.poll_returned(handle)
        for at in found:
            story.recorder.polled(
                2, call, "t/0", at, at, returned_ns=returned_ns, transaction=transaction
            )
        story.ended(transaction, type(OK)(outcome))
    story.scanned("t/0", *((at, at) for at in range(4)))
    assert story.names() == {"poll-skip"}
