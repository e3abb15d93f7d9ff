"""How much work a leader's answers are: a few small ones are taken in at once, others in slices."""

from collections.abc import Iterable, Iterator

from ...replication.follower_session import FollowerSlot
from ...replication.messages import SlotAnswer
from ...wire.record_batch import split_batches

BATCHES_A_STEP, BYTES_A_STEP = 128, 1024 * 1024  # of an append: 3 ms where all are markers
AT_ONCE_STEPS_MAX, AT_ONCE_BYTES_MAX = 4, 2 * 1024 * 1024  # of an answer that is not sliced
SMALL_ANSWER_BYTES = 8 * 1024  # of a partition
SHORT_APPEND_BYTES = 24 * 1024  # 300 markers, the smallest there are, take 6 to 9 ms
ANSWERS_A_STEP = 16  # small ones
Answered = tuple[FollowerSlot, SlotAnswer]


def in_steps(records: memoryview | bytes) -> Iterator[memoryview]:
    """Records in parts for one append each."""
    return split_batches(records, BATCHES_A_STEP, BYTES_A_STEP)


def may_take_long(answers: Iterable[Answered]) -> bool:
    """More than some 2 ms. Large batches are quick: what counts is how many there are."""
    size_bytes = steps = 0
    for number, answered in enumerate(answers, 1):
        if number % ANSWERS_A_STEP == 0:
            steps += 1
        if _may_cut(answered):
            return True
        records = answered[1].records
        size_bytes += len(records)
        if len(records) > SMALL_ANSWER_BYTES:
            steps += sum(1 for _ in in_steps(records))
    return size_bytes > AT_ONCE_BYTES_MAX or steps > AT_ONCE_STEPS_MAX


def longest_last(answers: Iterable[Answered]) -> list[Answered]:
    """A log that is cut, by thousands of segments perhaps, keeps no other waiting."""
    return sorted(answers, key=_may_cut)


def _may_cut(answered: Answered) -> bool:
    return answered[1].diverging_end_offset >= 0
