"""Test how producers and group members react to each error, by request and code."""

import pytest

from oncelog.client.groups.reactions import GroupReaction, GroupRequest, group_reaction_to
from oncelog.client.transactions.reactions import Fate, Reaction, Request, fate_after, reaction_to
from oncelog.wire.errors import ErrorCode

E, R, G = ErrorCode, Reaction, GroupReaction
MOVED = [E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.NETWORK_EXCEPTION, E.REQUEST_TIMED_OUT]
FENCED = [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_ID_MAPPING]
NEVER_AGAIN = [
    *FENCED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.UNSUPPORTED_VERSION,
    E.INVALID_TXN_STATE,
]


@pytest.mark.parametrize("request_", list(Request))
def test_transaction_request_has_the_listed_reaction_to_each_common_error_code(request_):
    assert reaction_to(request_, 0) is R.DONE
    for code in MOVED:
        assert reaction_to(request_, code) is R.FIND_COORDINATOR
    for code in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS):
        assert reaction_to(request_, code) is R.RETRY
    for code in NEVER_AGAIN:
        assert reaction_to(request_, code) is R.FATAL
    assert reaction_to(request_, 9999) is R.FATAL
    assert reaction_to(request_, E.UNKNOWN_SERVER_ERROR) is R.FATAL


@pytest.mark.parametrize("request_", [r for r in Request if r is not Request.INIT_PRODUCER_ID])
def test_transaction_request_answered_by_transaction_abortable_requires_an_abort(request_):
    assert reaction_to(request_, E.TRANSACTION_ABORTABLE) is R.ABORTABLE
    assert reaction_to(Request.INIT_PRODUCER_ID, E.TRANSACTION_ABORTABLE) is R.RETRY


@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        (Request.ADD_PARTITIONS, [E.TOPIC_AUTHORIZATION_FAILED, E.OPERATION_NOT_ATTEMPTED]),
        (Request.ADD_OFFSETS, [E.GROUP_AUTHORIZATION_FAILED]),
        (
            Request.COMMIT_OFFSETS,
            [
                E.UNKNOWN_MEMBER_ID,
                E.ILLEGAL_GENERATION,
                E.FENCED_INSTANCE_ID,
                E.GROUP_AUTHORIZATION_FAILED,
            ],
        ),
        (Request.END_TRANSACTION, [E.UNKNOWN_PRODUCER_ID]),
    ],
)
def test_transaction_request_answered_by_an_abortable_error_leaves_the_producer_usable(
    request_, codes
):
    for code in codes:
        assert reaction_to(request_, code) is R.ABORTABLE


def fate(code, *, retriable=False, oldest=True, transactional=False, doubtful=False, count=1):
    return fate_after(
        code,
        is_doubtful=doubtful,
        is_retriable=retriable,
        is_oldest_in_flight=oldest,
        is_transactional=transactional,
        record_count=count,
    )


@pytest.mark.parametrize("transactional", [False, True])
def test_produce_error_leads_to_the_listed_fate_of_its_batch(transactional):
    t = {"transactional": transactional}
    assert fate(0, **t) is Fate.DONE
    assert fate(E.DUPLICATE_SEQUENCE_NUMBER, **t) is Fate.DONE
    assert fate(E.NOT_LEADER_OR_FOLLOWER, retriable=True, **t) is Fate.RETRY
    assert fate(E.CONCURRENT_TRANSACTIONS, retriable=True, **t) is Fate.RETRY
    assert fate(E.INVALID_RECORD, **t) is Fate.FAIL
    assert fate(E.UNKNOWN_PRODUCER_ID, **t) is Fate.NEW_ID
    assert fate(E.OUT_OF_ORDER_SEQUENCE_NUMBER, oldest=False, **t) is Fate.RETRY
    assert fate(E.OUT_OF_ORDER_SEQUENCE_NUMBER, oldest=True, **t) is Fate.NEW_ID
    for code in (E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID):
        assert fate(code, doubtful=True, **t) is Fate.FAIL, "it may have been written"
    assert fate(E.OUT_OF_ORDER_SEQUENCE_NUMBER, oldest=False, doubtful=True, **t) is Fate.RETRY
    assert fate(E.MESSAGE_TOO_LARGE, count=2, **t) is Fate.SPLIT
    assert fate(E.MESSAGE_TOO_LARGE, count=1, **t) is Fate.FAIL
    for code in (E.PRODUCER_FENCED, E.CLUSTER_AUTHORIZATION_FAILED, E.UNSUPPORTED_VERSION):
        assert fate(code, **t) is Fate.FATAL


def test_produce_error_of_an_old_epoch_aborts_a_transaction_and_is_fatal_without_one():
    assert fate(E.INVALID_PRODUCER_EPOCH) is Fate.FATAL
    assert fate(E.INVALID_PRODUCER_EPOCH, transactional=True) is Fate.NEW_ID


@pytest.mark.parametrize("request_", list(GroupRequest))
def test_group_request_has_the_listed_reaction_to_each_error_code(request_):
    assert group_reaction_to(request_, 0) is G.DONE
    for code in MOVED:
        assert group_reaction_to(request_, code) is G.FIND_COORDINATOR
    assert group_reaction_to(request_, E.COORDINATOR_LOAD_IN_PROGRESS) is G.RETRY
    assert group_reaction_to(request_, E.GROUP_AUTHORIZATION_FAILED) is G.FAIL
    assert group_reaction_to(request_, E.FENCED_INSTANCE_ID) is G.FAIL
    assert group_reaction_to(request_, 9999) is G.FAIL
    member = request_ is not GroupRequest.FETCH_OFFSETS
    for code, reaction in (
        (E.REBALANCE_IN_PROGRESS, G.REJOIN),
        (E.ILLEGAL_GENERATION, G.RESET),
    ):
        assert group_reaction_to(request_, code) is (reaction if member else G.FAIL)
    # OffsetFetch names only members of consumer groups, and heartbeats tell those more.
    unknown = group_reaction_to(request_, E.UNKNOWN_MEMBER_ID)
    assert unknown is (G.RESET if member else G.RETRY)
    joins = request_ is GroupRequest.JOIN
    named = group_reaction_to(request_, E.MEMBER_ID_REQUIRED)
    assert named is (G.TAKE_MEMBER_ID if joins else G.FAIL)


def test_offset_fetch_answered_by_unstable_offset_commit_is_retried():
    assert group_reaction_to(GroupRequest.FETCH_OFFSETS, E.UNSTABLE_OFFSET_COMMIT) is G.RETRY


@pytest.mark.parametrize(
    ("request_", "code", "reaction"),
    [
        (GroupRequest.COMMIT, E.STALE_MEMBER_EPOCH, G.RETRY),
        (GroupRequest.COMMIT, E.FENCED_MEMBER_EPOCH, G.RESET),
        (GroupRequest.COMMIT, E.GROUP_ID_NOT_FOUND, G.RESET),
        (GroupRequest.FETCH_OFFSETS, E.STALE_MEMBER_EPOCH, G.RETRY),
        (GroupRequest.FETCH_OFFSETS, E.GROUP_ID_NOT_FOUND, G.RETRY),
    ],
)
def test_offset_request_with_a_member_epoch_has_a_listed_reaction_to_each_code(
    request_, code, reaction
):
    assert group_reaction_to(request_, code) is reaction
