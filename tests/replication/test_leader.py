"""Test the rules of a partition's leader as in Kafka (KIP-497, 841, 903 and 966)."""

import pytest

from oncelog.replication.follower_progress import PeerView
from oncelog.replication.isr_change import IsrChange, IsrMember
from oncelog.wire.errors import ErrorCode

from ..present import present
from .leading import CommittedLog, Leading

LAG_MS = 1000
LIVE = {1: 11, 2: 12, 3: 13}


def leader(
    *,
    replicas=(1, 2, 3),
    isr=(1, 2, 3),
    min_insync=2,
    end=0,
    high_watermark=0,
    live: dict[int, int] = LIVE,
    peers: PeerView | None = None,
) -> Leading:
    partition = Leading(
        node_id=1,
        leader_epoch=5,
        partition_epoch=7,
        replicas=replicas,
        isr=isr,
        min_insync_replicas=min_insync,
        log=CommittedLog(high_watermark),
        log_end_offset=end,
        now_ms=0,
        lag_time_max_ms=LAG_MS,
        broker_epoch=11,
        peers=peers or PeerView(live=live),
    )
    partition.tick(0)
    return partition


def fetch(partition: Leading, node: int, offset: int, now_ms: int = 1, epoch=None):
    return partition.follower_fetched(node, epoch or LIVE[node], offset, now_ms)


def adding_3() -> tuple[Leading, IsrChange]:
    """Return a leader with the ISR 1, 2, and the change by which the leader adds node 3."""
    partition = leader(isr=(1, 2))
    fetch(partition, 3, 0)
    return partition, present(partition.next_isr_change(1))


def test_leader_high_watermark_starts_at_the_local_high_watermark() -> None:
    assert leader(end=10, high_watermark=4).high_watermark == 4


def test_leader_alone_in_the_isr_commits_immediately() -> None:
    alone = leader(replicas=(1,), isr=(1,), min_insync=2, end=3)
    assert alone.high_watermark == 3
    assert alone.appended(5, 1)
    assert alone.high_watermark == 5


def test_leader_high_watermark_is_the_lowest_end_in_the_isr() -> None:
    partition = leader()
    assert not partition.appended(10, 1)
    assert fetch(partition, 2, 10).high_watermark is None
    assert partition.high_watermark == 0  # node 3 has not fetched
    assert fetch(partition, 3, 6).high_watermark == 6
    assert partition.high_watermark == 6


def test_leader_high_watermark_never_moves_back() -> None:
    partition = leader(isr=(1, 2))
    partition.appended(10, 1)
    fetch(partition, 2, 10)
    fetch(partition, 2, 4, 2, epoch=99)
    assert partition.high_watermark == 10


def test_leader_with_an_isr_below_its_minimum_commits_no_record() -> None:
    partition = leader(isr=(1,), live={1: 11})
    partition.appended(10, 1)
    assert partition.is_under_min_isr
    assert partition.high_watermark == 0
    assert partition.metadata_applied(isr=(1,), partition_epoch=7, now_ms=2, min_insync_replicas=1)
    assert partition.high_watermark == 10


def test_min_isr_is_never_above_the_number_of_replicas() -> None:
    partition = leader(replicas=(1, 2), isr=(1, 2), min_insync=3)
    assert partition.min_insync_replicas == 2
    assert not partition.is_under_min_isr


def test_pending_isr_addition_holds_back_the_high_watermark() -> None:
    partition = leader(isr=(1, 2))
    partition.appended(10, 1)
    fetch(partition, 2, 10)
    assert fetch(partition, 3, 10).may_join_isr
    change = partition.next_isr_change(2)
    assert change is not None and change.node_ids == {1, 2, 3}
    partition.appended(20, 5000)
    fetch(partition, 2, 20, 5001)  # node 3 has not fetched for long, and may be a member
    assert partition.high_watermark == 10


def test_pending_isr_removal_holds_back_the_high_watermark_until_confirmed() -> None:
    partition = leader()
    partition.appended(10, 1)
    fetch(partition, 2, 10, 2)
    change = partition.next_isr_change(2 * LAG_MS)
    assert change is not None and change.node_ids == {1, 2}
    assert partition.high_watermark == 0
    assert partition.isr_change_succeeded(change, (1, 2), 8, 2 * LAG_MS)
    assert (partition.high_watermark, partition.partition_epoch) == (10, 8)


def test_follower_that_keeps_up_holds_back_the_high_watermark_before_it_joins_the_isr() -> None:
    partition = leader(isr=(1, 2))
    partition.appended(10, 1)
    fetch(partition, 3, 10, 1)
    fetch(partition, 2, 10, 1)
    partition.appended(20, 2)
    fetch(partition, 2, 20, 3)
    assert partition.high_watermark == 10
    assert partition.tick(2 + 2 * LAG_MS)  # the follower stopped
    assert partition.high_watermark == 20


NOT_ELIGIBLE = [
    pytest.param({1: 11, 2: 12}, id="fenced"),
    pytest.param({1: 11, 2: 12, 3: 14}, id="another incarnation registered (KIP-903)"),
]


@pytest.mark.parametrize("live", NOT_ELIGIBLE)
def test_follower_that_is_ineligible_does_not_hold_back_the_high_watermark(
    live: dict[int, int],
) -> None:
    peers = PeerView(live=LIVE)
    partition = leader(isr=(1, 2), peers=peers)
    fetch(partition, 3, 0, 1)
    partition.appended(10, 1)
    peers.live = live
    fetch(partition, 2, 10, 1)
    assert partition.high_watermark == 10


@pytest.mark.parametrize("live", NOT_ELIGIBLE)
def test_follower_that_is_ineligible_does_not_join_the_isr(live: dict[int, int]) -> None:
    """The follower has all records, but was fenced or replaced since its last fetch."""
    peers = PeerView(live=LIVE)
    partition = leader(isr=(1, 2), end=10, peers=peers)
    assert fetch(partition, 3, 10).may_join_isr
    peers.live = live
    assert partition.next_isr_change(2) is None


def test_follower_joins_the_isr_only_at_the_high_watermark_and_the_epoch_start() -> None:
    partition = leader(isr=(1, 2), end=10, high_watermark=4)
    assert not fetch(partition, 3, 4).may_join_isr
    assert not fetch(partition, 3, 9).may_join_isr
    assert fetch(partition, 3, 10).may_join_isr


def test_follower_at_the_high_watermark_of_a_new_leader_waits_for_the_epoch_start() -> None:
    """A new leader's high watermark may lag behind committed records (KAFKA-7128).

    Committed records end at the start of the leader's epoch at the latest.
    """
    partition = leader(end=10, high_watermark=4)
    partition.metadata_applied(isr=(1, 2), partition_epoch=8, now_ms=1)
    assert not fetch(partition, 3, 4, 2).may_join_isr
    assert fetch(partition, 3, 10, 3).may_join_isr


def test_follower_that_would_be_removed_at_once_is_not_added_to_the_isr() -> None:
    """The follower is at the high watermark, but behind the log end for longer than the lag time.

    An ISR below its minimum does not advance the high watermark, so without this rule a broken link
    would add and remove the follower again and again.
    """
    partition = leader(isr=(1,))
    fetch(partition, 2, 0, 1)
    partition.appended(5, 2)
    assert partition.high_watermark == 0 == partition.followers[2].log_end_offset
    assert partition.next_isr_change(2 + 2 * LAG_MS) is None
    fetch(partition, 2, 5, 3 + 2 * LAG_MS)
    assert partition.next_isr_change(3 + 2 * LAG_MS) is not None


def test_silent_follower_at_the_log_end_is_not_added_to_the_isr() -> None:
    peers = PeerView(live=LIVE)
    partition = leader(isr=(1,), peers=peers)
    fetch(partition, 2, 0, 1)
    assert partition.next_isr_change(2 + LAG_MS) is None
    peers.last_fetch_ms[2] = 2 + LAG_MS  # its session is alive
    assert partition.next_isr_change(2 + LAG_MS) is not None


def test_fetch_of_a_former_follower_incarnation_is_ignored() -> None:
    partition = leader()
    partition.appended(10, 1)
    assert not fetch(partition, 2, 10, 1, epoch=11).is_accepted
    assert partition.followers[2].log_end_offset == -1


def test_fetch_of_a_follower_incarnation_older_than_a_known_one_is_ignored() -> None:
    partition = leader(live={})
    partition.appended(10, 1)
    assert fetch(partition, 2, 5, 1, epoch=20).is_accepted
    assert not fetch(partition, 2, 10, 1, epoch=19).is_accepted
    assert partition.followers[2].log_end_offset == 5


def test_fetch_of_an_unknown_replica_is_ignored() -> None:
    assert not leader().follower_fetched(9, 1, 0, 1).is_accepted


# -- members of the ISR (Kafka's Replica.updateFetchState)


def test_follower_at_the_log_end_is_never_removed_from_the_isr() -> None:
    partition = leader()
    for node in (2, 3):
        fetch(partition, node, 0, 1)
    assert partition.next_isr_change(100 * LAG_MS) is None


def test_follower_that_is_silent_is_removed_after_the_lag_time_and_not_before() -> None:
    partition = leader()
    partition.appended(1, 0)
    fetch(partition, 3, 1, LAG_MS)
    assert partition.next_isr_change(LAG_MS) is None
    change = present(partition.next_isr_change(LAG_MS + 1))
    assert change.isr == (IsrMember(1, 11), IsrMember(3, 13))
    assert (change.leader_epoch, change.partition_epoch) == (5, 7)


def test_follower_at_the_log_end_of_its_previous_fetch_was_caught_up_at_that_time() -> None:
    partition = leader(isr=(1, 2), replicas=(1, 2))
    partition.appended(10, 0)
    fetch(partition, 2, 0, 100)  # the leader's log ends at 10
    partition.appended(20, 500)
    fetch(partition, 2, 10, 600)  # the leader's log end at 100 ms
    partition.appended(30, 650)
    assert partition.followers[2].last_caught_up_ms == 100
    assert partition.next_isr_change(100 + LAG_MS) is None
    assert partition.next_isr_change(101 + LAG_MS) is not None


def test_idle_fetch_session_keeps_its_followers_in_the_isr() -> None:
    """A follower sends no unchanged position. Any fetch of its session shows that it is alive."""
    peers = PeerView(live=LIVE)
    partition = leader(isr=(1, 2), replicas=(1, 2), peers=peers)
    fetch(partition, 2, 0, 1)
    peers.last_fetch_ms[2] = 50_000
    partition.appended(1, 50_100)
    assert partition.next_isr_change(50_000 + LAG_MS) is None
    assert partition.next_isr_change(50_001 + LAG_MS) is not None


def test_follower_outside_the_isr_joins_only_after_a_fetch() -> None:
    partition = leader(isr=(1, 2), end=0)
    assert partition.next_isr_change(1) is None


def test_follower_incarnation_that_is_new_starts_without_progress() -> None:
    partition = leader(live={})
    partition.appended(10, 0)
    fetch(partition, 2, 0, 10, epoch=20)
    fetch(partition, 2, 10, 20, epoch=20)
    fetch(partition, 2, 3, 30, epoch=21)
    assert partition.followers[2].log_end_offset == 3
    fetch(partition, 3, 10, 30)
    change = partition.next_isr_change(31)
    assert change is not None and 2 not in change.node_ids


# -- one change at a time, and its failures


def test_isr_has_one_pending_change_at_a_time() -> None:
    partition = leader()
    partition.appended(1, 0)
    assert partition.next_isr_change(5000) is not None
    assert partition.next_isr_change(6000) is None


def test_isr_removal_and_addition_are_proposed_in_one_change() -> None:
    partition = leader(isr=(1, 2))
    partition.appended(1, 0)
    fetch(partition, 3, 1, 5000)
    change = partition.next_isr_change(5000)
    assert change is not None and change.node_ids == {1, 3}
    assert change.isr == (IsrMember(1, 11), IsrMember(3, 13))


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_isr_change_that_is_refused_restores_the_confirmed_isr(error: ErrorCode) -> None:
    partition, change = adding_3()
    assert partition.isr_change_failed(change, error) is None
    assert partition.pending_isr_change is None
    assert partition.next_isr_change(2) is not None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_isr_change_refused_for_outdated_metadata_stays_pending_until_newer_metadata(
    error: ErrorCode,
) -> None:
    partition, change = adding_3()
    assert partition.isr_change_failed(change, error) is None
    assert partition.pending_isr_change is change
    partition.metadata_applied(isr=(1, 2), partition_epoch=7, now_ms=2)  # nothing newer
    assert partition.pending_isr_change is change
    partition.metadata_applied(isr=(1, 2), partition_epoch=8, now_ms=3)
    assert partition.pending_isr_change is None


@pytest.mark.parametrize("error", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_isr_change_with_an_unknown_outcome_is_repeated(error: ErrorCode) -> None:
    partition, change = adding_3()
    assert partition.isr_change_failed(change, error) is change
    assert partition.pending_isr_change is change


def test_isr_change_answer_that_arrives_after_the_change_is_ignored() -> None:
    partition, change = adding_3()
    partition.metadata_applied(isr=(1, 2, 3), partition_epoch=9, now_ms=2)
    assert not partition.isr_change_succeeded(change, (1, 2), 8, 3)
    assert partition.isr_change_failed(change, ErrorCode.REQUEST_TIMED_OUT) is None
    assert partition.isr == {1, 2, 3}


def test_assignment_change_keeps_the_progress_of_remaining_replicas() -> None:
    partition = leader()
    partition.appended(4, 0)
    fetch(partition, 2, 4)
    partition.metadata_applied(isr=(1, 2), partition_epoch=8, now_ms=2, replicas=(1, 2, 4))
    assert partition.followers[2].log_end_offset == 4
    assert 3 not in partition.followers
    assert partition.followers[4].log_end_offset == -1
    assert partition.high_watermark == 4


def test_low_watermark_is_the_lowest_of_live_replicas() -> None:
    partition = leader(live={1: 11, 2: 12})
    assert partition.low_watermark(5) == -1
    partition.follower_fetched(2, 12, 0, 1, log_start_offset=3)
    assert partition.low_watermark(5) == 3
    assert leader(replicas=(1,), isr=(1,)).low_watermark(5) == 5


def test_partition_with_all_replicas_at_the_log_end_keeps_its_isr_without_further_fetches() -> None:
    partition = leader()
    partition.appended(10, 1)
    assert not partition.is_settled
    fetch(partition, 2, 10)
    assert not partition.is_settled  # node 3 has not fetched, and leaves after a while
    fetch(partition, 3, 10)
    assert partition.is_settled
    assert partition.next_isr_change(100 * LAG_MS) is None
    assert not partition.tick(100 * LAG_MS)


def test_partition_with_followers_outside_the_isr_or_behind_needs_further_isr_checks() -> None:
    outside = leader(isr=(1, 2), end=10)
    fetch(outside, 2, 10)
    assert not outside.is_settled
    fetch(outside, 3, 10)
    assert outside.next_isr_change(2) is not None
    assert not outside.is_settled  # a change is pending
    behind = leader(end=10)
    fetch(behind, 2, 10)
    fetch(behind, 3, 9)
    assert not behind.is_settled
    assert behind.next_isr_change(100 * LAG_MS) is not None
