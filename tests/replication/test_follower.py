"""Test the truncation of a follower's log by KIP-101, KIP-279 and KIP-595."""

import pytest

from oncelog.replication.follower import Append, PartitionFollower, StartAt, TruncateTo, Wait
from oncelog.replication.messages import SlotAnswer
from oncelog.wire.errors import ErrorCode

from .memory_log import MemoryLog

FOLLOWER = PartitionFollower(1, 9)


def log_of(*epochs: int, high_watermark: int = 0) -> MemoryLog:
    """Return a log with one record for each of these leader epochs."""
    log = MemoryLog()
    for epoch in epochs:
        log.append(epoch, 0)
    log.high_watermark = high_watermark
    return log


def test_follower_fetch_position_is_its_log_end_and_last_epoch() -> None:
    assert FOLLOWER.fetch_position(log_of(1, 1, 4)) == (3, 4)
    assert FOLLOWER.fetch_position(log_of()) == (0, -1)


def test_follower_appends_fetched_records_and_raises_its_high_watermark_and_log_start() -> None:
    answer = SlotAnswer(1, 0, 7, 2, records=b"x")
    assert FOLLOWER.on_response(answer, log_of()) == Append(b"x", 7, 2)


@pytest.mark.parametrize(
    ("epochs", "diverging", "cut_at"),
    [
        ((1, 1, 2, 2), (2, 3), 3),  # the leader has less of our last epoch
        ((1, 1, 3, 3), (1, 2), 2),  # the leader never had epoch 3
        ((1, 1, 3, 3), (2, 4), 2),  # the leader's epoch 2 is unknown here: only 1 stays
        ((1, 1, 3, 3), (1, 9), 2),  # the leader has more of epoch 1 than the follower
        ((5, 5), (3, 1), 0),  # all that we have is newer
        ((1, 1), (-1, 1), 1),  # no epochs at the leader
    ],
)
def test_follower_with_a_diverging_epoch_truncates_to_the_common_offset(
    epochs, diverging, cut_at
) -> None:
    epoch, end = diverging
    answer = SlotAnswer(1, diverging_epoch=epoch, diverging_end_offset=end)
    action = FOLLOWER.on_response(answer, log_of(*epochs))
    assert action == TruncateTo(cut_at, is_below_high_watermark=False)


def test_follower_truncation_below_the_high_watermark_is_marked() -> None:
    answer = SlotAnswer(1, diverging_epoch=1, diverging_end_offset=1)
    action = FOLLOWER.on_response(answer, log_of(1, 2, 2, high_watermark=2))
    assert action == TruncateTo(1, is_below_high_watermark=True)


def test_follower_out_of_range_beyond_the_leader_end_truncates_to_that_end() -> None:
    answer = SlotAnswer(
        1, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0, diverging_end_offset=2
    )
    assert FOLLOWER.on_response(answer, log_of(1, 1, 1)) == TruncateTo(2, False)


def test_follower_out_of_range_before_the_leader_start_restarts_at_that_start() -> None:
    answer = SlotAnswer(
        1, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=8, diverging_end_offset=9
    )
    assert FOLLOWER.on_response(answer, log_of(1, 1)) == StartAt(8)


def test_follower_out_of_range_that_is_in_range_again_retries() -> None:
    answer = SlotAnswer(
        1, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=0, diverging_end_offset=9
    )
    assert FOLLOWER.on_response(answer, log_of(1)) == Wait(ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
def test_follower_waits_after_any_other_error(error: ErrorCode) -> None:
    assert FOLLOWER.on_response(SlotAnswer(1, error), log_of()) == Wait(error)
