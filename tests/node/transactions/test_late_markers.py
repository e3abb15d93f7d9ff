"""Test that a late marker of an earlier transaction does not end the next transaction.

A producer without KIP-890 keeps its epoch, and the coordinator is the same, so the marker's epochs
do not show its age.
"""

import asyncio
from pathlib import Path

import pytest

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.transactions.messages import TransactionMarker, WriteMarkers
from oncelog.wire.errors import ErrorCode

from ..leading_broker import LeadingBroker, batch

E = ErrorCode
LEADER_EPOCH = 1


async def begin(broker: LeadingBroker, sequence: int, *, ongoing_index: int, index: int = 0) -> int:
    """Produce the first batch of a transaction, and return the transaction's first offset."""
    broker.verifier.ongoing_index = ongoing_index
    producing = broker.produce(broker.connect(), {index: batch(sequence)}, version=9)
    assert await producing.errors() == {index: E.NONE}
    first_offset = broker.log(index).producer_state.first_ongoing_offset
    assert first_offset is not None
    return first_offset


@pytest.mark.parametrize("late_is_commit", [True, False])
async def test_marker_of_the_same_epochs_that_arrives_late_is_refused(
    broker: LeadingBroker, late_is_commit: bool
) -> None:
    await begin(broker, 0, ongoing_index=10)
    first = {"prepare_index": 11, "leader_epoch": LEADER_EPOCH, "commits": late_is_commit}
    assert await broker.mark(**first) == [E.NONE]
    first_offset = await begin(broker, 1, ongoing_index=13)
    assert await broker.mark(**first) == [E.INVALID_TXN_STATE]
    assert broker.log().last_stable_offset == first_offset, "readers still wait for its end"
    second = {"prepare_index": 14, "leader_epoch": LEADER_EPOCH, "commits": not late_is_commit}
    assert await broker.mark(**second) == [E.NONE]
    assert broker.log().last_stable_offset == broker.log().log_end_offset
    assert await broker.mark(**first) == [E.NONE], "nothing is open: it ends nothing"


async def test_marker_overtaken_by_its_own_repetition_is_refused(
    tmp_path: Path,
) -> None:
    """The broker handles 1,000 other markers before it, and gets the repetition meanwhile."""
    broker = LeadingBroker(tmp_path, partitions=2)
    await begin(broker, 0, ongoing_index=10, index=1)
    end = TransactionMarker(7, 0, 3, False, (("t", 1),), 0, 11, (LEADER_EPOCH,))
    others = tuple(
        TransactionMarker(100 + number, 0, 3, True, (("t", 0),)) for number in range(1_000)
    )
    sent_first = asyncio.ensure_future(
        broker.markers.write_txn_markers(WriteMarkers((*others, end)))
    )
    await asyncio.sleep(0)
    assert not sent_first.done()
    assert (await broker.markers.write_txn_markers(WriteMarkers((end,)))).errors == ((E.NONE,),)
    first_offset = await begin(broker, 1, ongoing_index=13, index=1)
    assert (await sent_first).errors[-1] == (E.INVALID_TXN_STATE,)
    assert broker.log(1).producer_state.first_ongoing_offset == first_offset


@pytest.mark.parametrize(
    ("meant_for", "error"), [(1, E.FENCED_LEADER_EPOCH), (5, E.NONE), (6, E.UNKNOWN_LEADER_EPOCH)]
)
async def test_marker_is_refused_if_its_request_names_another_leader_epoch(
    broker: LeadingBroker, meant_for: int, error: int
) -> None:
    """A new leader does not know for which transaction a marker was sent to its predecessor."""
    await begin(broker, 0, ongoing_index=10)
    broker.resign()
    record = PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=5)
    broker.make_leader(broker.partition(), record)
    assert await broker.mark(prepare_index=11, leader_epoch=meant_for) == [error]


async def test_marker_of_an_administrator_is_accepted_without_a_leader_epoch(
    broker: LeadingBroker,
) -> None:
    """A WriteTxnMarkers request has neither a leader epoch nor the index of a prepared record."""
    await begin(broker, 0, ongoing_index=10)
    assert await broker.mark(commits=False) == [E.NONE]
    assert broker.log().last_stable_offset == broker.log().log_end_offset
