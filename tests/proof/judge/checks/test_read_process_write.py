"""Test check A5, by which a group has the offsets that its transactions committed."""

import pytest

from ..small_history import FAIL, INFO, OK, OpOutcome, SmallHistory


class Job:
    """A history of a read-process-write job with `inputs` inputs, from offset 0.

    The inputs below `start` have been deleted since.
    Each transaction processes the inputs [low, high).
    """

    def __init__(self, *, inputs: int = 6, start: int = 0) -> None:
        self.story = SmallHistory()
        self.made = 100
        self.outputs: list[int] = []
        for at in range(inputs):
            self.story.sent(at, "in/0", at)
        self.story.scanned("in/0", *((at, at) for at in range(start, inputs)))
        self.story.end("in/0", inputs, start=start)

    def did(self, low: int, high: int, outcome: OpOutcome = OK, *, is_shown: bool = True) -> None:
        """Add a transaction that writes an output for each input and commits the offset `high`.

        With the outcome INFO it writes no output. Without `is_shown` the output topic lacks its
        committed outputs.
        """
        story, add = self.story, self.story.recorder.add
        transaction = story.recorder.begin(3, "job")
        for at in range(low, high) if outcome is not INFO else ():
            self.made += 1
            story.sent(self.made, "out/0", len(self.outputs), process=3, within=transaction)
            add("derivations", self.made, "job", "in/0", at)
            if is_shown and outcome is OK:
                self.outputs.append(self.made)
        add("offset_commits", transaction.number, 3, "job", "in/0", low, high, story.now_ns, INFO)
        story.ended(transaction, outcome)

    def names(self, **committed: int) -> set[str]:
        story = self.story
        for partition, offset in committed.items():
            story.recorder.add("committed", "job", f"{partition}/0", offset, story.now_ns)
        story.scanned("out/0", *enumerate(self.outputs))
        story.end("out/0", len(self.outputs))
        return story.names()


def test_read_process_write_job_with_all_offsets_committed_is_clean() -> None:
    job = Job()
    job.did(0, 3)
    job.did(3, 6)
    assert job.names(**{"in": 6}) == set()


def test_read_process_write_job_with_vanished_offsets_is_reported() -> None:
    job = Job()
    job.did(0, 6)
    assert job.names(**{"in": -1}) == {"offset-gap"}


def test_read_process_write_offset_below_commits_of_unknown_outcome_is_reported() -> None:
    job = Job(inputs=8)
    job.did(0, 6)
    job.did(4, 8, INFO)  # it may have moved the position to 8, and not to 2
    assert job.names(**{"in": 2}) == {"offset-gap"}


@pytest.mark.parametrize(("unknown", "is_gap"), [([(2, 4)], True), ([(2, 4), (4, 6)], False)])
def test_read_process_write_gap_is_accepted_only_if_commits_of_unknown_outcome_cover_it(
    unknown: list[tuple[int, int]], is_gap: bool
) -> None:
    job = Job(inputs=8)
    job.did(0, 2)
    for low, high in unknown:
        job.did(low, high, INFO)
    job.did(6, 8)
    assert ("offset-gap" in job.names(**{"in": 8})) == is_gap


def test_read_process_write_offsets_of_an_aborted_first_transaction_are_ignored() -> None:
    job = Job()
    job.did(0, 3, FAIL)
    job.did(3, 6)
    assert "offset-gap" in job.names(**{"in": 6})


def test_read_process_write_input_deleted_since_is_not_reported_as_missing() -> None:
    job = Job(start=3)
    job.did(0, 3)
    job.did(3, 6)
    assert job.names(**{"in": 6}) == set()
