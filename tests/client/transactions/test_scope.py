"""Test which partitions belong to a transaction, and the request that ends it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.transactions.scope import Ending, TransactionScope

A, B = ("t", 0), ("t", 1)


@pytest.mark.parametrize(
    ("is_v2", "has_begun", "is_uncertain", "is_commit", "can_raise"),
    list(itertools.product([False, True], repeat=5)),
)
def test_aborted_v1_transaction_of_uncertain_state_ends_by_a_new_epoch_and_others_by_end_txn(
    is_v2, has_begun, is_uncertain, is_commit, can_raise
):
    scope = TransactionScope(is_v2=is_v2)
    scope.has_begun, scope.is_uncertain = has_begun, is_uncertain
    ending = scope.ending(is_commit=is_commit, can_raise_epoch=can_raise)
    if not has_begun:
        assert ending is Ending.NOTHING
    elif not is_commit and not is_v2 and is_uncertain and can_raise:
        assert ending is Ending.NEW_EPOCH, "KAFKA-14053: what is late must not get in"
    else:
        assert ending is Ending.END_TRANSACTION


def test_transaction_v1_adds_partitions_in_one_request_at_a_time():
    scope = TransactionScope(is_v2=False)
    assert scope.want(A) and not scope.want(A)
    assert scope.has_unadded and not scope.may_leave(A)
    assert scope.take_unadded() == (A,)
    assert scope.want(B) and not scope.want(A)
    assert not scope.has_unadded, "one is on its way"
    scope.added()
    assert scope.may_leave(A) and not scope.may_leave(B)
    assert scope.has_unadded and scope.take_unadded() == (B,)
    scope.added()
    assert not scope.has_unadded and scope.may_leave(B)


def test_transaction_v2_adds_partitions_by_its_produce_requests():
    scope = TransactionScope(is_v2=True)
    assert scope.want(A)
    assert scope.may_leave(A) and not scope.has_unadded
    assert scope.ending(is_commit=True) is Ending.NOTHING, "nothing has left"
    scope.sent()
    assert scope.ending(is_commit=True) is Ending.END_TRANSACTION


def test_add_partitions_request_without_an_answer_makes_the_transaction_uncertain():
    scope = TransactionScope(is_v2=False)
    scope.want(A)
    assert scope.ending(is_commit=False) is Ending.NOTHING
    scope.take_unadded()
    assert scope.ending(is_commit=False) is Ending.NEW_EPOCH
    scope.added()
    assert scope.ending(is_commit=False) is Ending.END_TRANSACTION


@given(st.lists(st.sampled_from(["want a", "want b", "take", "added"]), max_size=30))
def test_batch_is_never_sent_to_a_partition_that_is_not_added(steps):
    scope = TransactionScope(is_v2=False)
    wanted, asked, added = set(), set(), set()
    for step in steps:
        if step.startswith("want"):
            where = A if step.endswith("a") else B
            assert scope.want(where) == (where not in wanted | asked | added)
            if where not in asked | added:
                wanted.add(where)
        elif step == "take" and scope.has_unadded:
            assert set(scope.take_unadded()) == wanted
            asked, wanted = wanted, set()
        elif step == "added":
            scope.added()
            added, asked = added | asked, set()
        assert {where for where in (A, B) if scope.may_leave(where)} == added
        assert scope.has_unadded == (bool(wanted) and not asked)
