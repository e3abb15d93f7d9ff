"""Test the records of a transaction shard, with conditional writes, replay and snapshots."""

import contextlib
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.transactions.commands import (
    MalformedTransactionCommand,
    SetShardCount,
    Write,
    WriteRecords,
    decode_transaction_command,
    encode_transaction_command,
)
from oncelog.coordinator.transactions.decisions import (
    Change,
    DecisionContext,
    EndTransaction,
    FenceProducer,
    InitProducerId,
    abort_transaction,
    add_partitions,
    end_transaction,
    init_producer_id,
)
from oncelog.coordinator.transactions.record import TransactionRecord, check_transition
from oncelog.coordinator.transactions.shard import (
    SLICE_RECORDS,
    TransactionShard,
    UnreadableShard,
)
from oncelog.coordinator.transactions.states import PREPARED, TransactionState
from oncelog.runtime.sliced_work import run_to_end

S = TransactionState
IDS = ("one", "two", "three")
TERM = 4


def empty(producer_id: int = 7, epoch: int = 0) -> TransactionRecord:
    return TransactionRecord(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=1000,
        state=S.EMPTY,
        last_update_ms=5,
    )


def do(shard: TransactionShard, index: int, *writes: Write, term: int = TERM):
    return shard.apply(encode_transaction_command(WriteRecords(TERM, writes)), index, term)


@pytest.fixture
def shard() -> TransactionShard:
    return TransactionShard()


def test_transaction_record_write_is_refused_if_the_record_has_changed(
    shard: TransactionShard,
) -> None:
    first = Write.after("one", None, empty())
    assert do(shard, 1, first).is_done
    assert shard.records["one"] == empty()._replace(version=1)
    assert do(shard, 2, first).refusals == ("the record has changed",)
    old = shard.records["one"]
    second = Write.after("one", old, empty(epoch=1))
    assert do(shard, 3, second).is_done
    assert not do(shard, 4, second).is_done
    assert shard.records["one"].version == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"expected_version": 9},
        {"expected_producer_id": 8},
        {"expected_producer_epoch": 1},
        {"expected_state": S.ONGOING},
    ],
)
def test_transaction_record_write_with_any_wrong_expectation_is_refused(
    shard: TransactionShard, changes
) -> None:
    do(shard, 1, Write.after("one", None, empty()))
    write = Write.after("one", shard.get("one"), empty(epoch=1))
    assert not do(shard, 2, replace(write, **changes)).is_done
    assert do(shard, 2, write).is_done


def test_transaction_command_of_a_deposed_leader_changes_no_record(shard: TransactionShard) -> None:
    applied = do(shard, 1, Write.after("one", None, empty()), term=TERM + 1)
    assert not applied.is_done and applied.reason
    assert len(shard) == 0


def test_transaction_record_writes_that_are_chained_succeed_or_fail_together(
    shard: TransactionShard,
) -> None:
    one, two = empty(7), empty(8)
    chain = (
        Write.after("one", None, one),
        Write.chained("one", one, one._replace(producer_epoch=1)),
        Write.after("two", None, two),
    )
    assert do(shard, 1, *chain).is_done
    assert shard.records["one"].producer_epoch == 1
    applied = do(shard, 2, *chain)
    assert all(applied.refusals)
    assert shard.records["one"].version == 1
    late = Write.chained("three", one, one._replace(producer_epoch=1))
    assert do(shard, 3, late).refusals == ("what comes before it was not done",)


def test_transactional_id_with_an_open_transaction_cannot_be_removed(
    shard: TransactionShard,
) -> None:
    do(shard, 1, Write.after("one", None, empty()))
    idle = shard.get("one")
    assert idle is not None
    ongoing = idle._replace(state=S.ONGOING, start_ms=5, partitions=frozenset({("t", 0)}))
    assert do(shard, 2, Write.after("one", idle, ongoing)).is_done
    assert list(shard.open_ids) == ["one"]
    assert not do(shard, 3, Write.after("one", shard.get("one"), None)).is_done
    shard = TransactionShard()
    do(shard, 1, Write.after("one", None, empty()))
    assert do(shard, 2, Write.after("one", shard.get("one"), None)).is_done
    assert shard.get("one") is None
    assert not do(shard, 3, Write.after("two", None, None)).is_done


def test_transaction_shard_count_is_set_once(shard: TransactionShard) -> None:
    say = [encode_transaction_command(SetShardCount(TERM, count)) for count in (4, 8, 4)]
    assert [shard.apply(each, i, TERM).is_done for i, each in enumerate(say)] == [
        True, False, True,
    ]  # fmt: skip
    assert shard.shard_count == 4
    copy = TransactionShard()
    copy.restore(shard.snapshot())
    assert copy.shard_count == 4


# -- any history of decisions


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Draw commands that a leader proposes, some of them repeated later."""
    shard = TransactionShard()
    commands: list[bytes] = []
    numbers = iter(range(100, 1000))
    for index in range(1, draw(st.integers(1, 30))):
        name = draw(st.sampled_from(IDS))
        record = shard.get(name)
        client = (7, 0) if record is None else record.client
        now_ms = index * 10
        context = DecisionContext(now_ms=now_ms, fresh_producer_id=next(numbers))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            request = InitProducerId(
                timeout_ms=50,
                expected=draw(st.sampled_from([None, client])),
                keeps_prepared=draw(st.booleans()),
            )
            decision = init_producer_id(record, request, context)
        elif kind == 1:
            partition = ("t", draw(st.integers(0, 2)))
            decision = add_partitions(record, client, [partition], context)
        elif kind == 2:
            request = EndTransaction(
                identity=client,
                is_commit=draw(st.booleans()),
                bumps_epoch=draw(st.booleans()),
            )
            decision = end_transaction(record, request, context)
        elif kind == 3:
            decision = abort_transaction(record, context)
        elif kind == 4 and record is not None and record.state in PREPARED:
            decision = Change(record.completed(now_ms))
        else:
            decision = None
        if isinstance(decision, Change | FenceProducer):
            new = decision.record
            assert check_transition(record, new) is None
            write = Write.after(name, record, new)
        elif decision is None and record is not None and kind == 5:
            write = Write.after(name, record, None)
        else:
            continue
        command = encode_transaction_command(WriteRecords(TERM, (write,)))
        commands.append(command)
        shard.apply(command, index, TERM)
        if commands and draw(st.booleans()):
            commands.append(draw(st.sampled_from(commands)))
            shard.apply(commands[-1], index, TERM)
    return commands


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_transaction_shard_replayed_from_its_log_equals_the_original(
    commands: list[bytes], data: st.DataObject
) -> None:
    shard, replica = TransactionShard(), TransactionShard()
    restart = data.draw(st.integers(0, len(commands)))
    for index, command in enumerate(commands, 1):
        applied = shard.apply(command, index, TERM)
        assert replica.apply(command, index, TERM) == applied
        if index == restart:  # the replica restarts from a snapshot
            snapshot = replica.snapshot()
            replica = TransactionShard()
            replica.restore(snapshot)
            assert replica.snapshot() == snapshot
    assert replica.snapshot() == shard.snapshot()
    assert replica.records == shard.records
    for one in (shard, replica):
        assert set(one.open_ids) == {n for n, r in one.records.items() if r.state == S.ONGOING}
        assert set(one.prepared_ids) == {n for n, r in one.records.items() if r.state in PREPARED}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4), histories())
def test_transaction_shard_raises_only_for_unreadable_commands(
    garbage: list[bytes], commands: list[bytes]
) -> None:
    shard = TransactionShard()
    for index, command in enumerate(commands, 1):
        shard.apply(command, index, TERM)
    for data in garbage:
        before = shard.snapshot()
        with pytest.raises(MalformedTransactionCommand):
            shard.apply(data, 10_000, TERM)
        assert shard.snapshot() == before
    for command in commands:  # bits flip
        for position in range(0, len(command), 7):
            broken = bytearray(command)
            broken[position] ^= 0x55
            before = shard.snapshot()
            with contextlib.suppress(MalformedTransactionCommand):
                if shard.apply(bytes(broken), 10_000, TERM).is_done:
                    continue
            assert shard.snapshot() == before
    shard.snapshot()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=8)
    | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_transaction_command_of_any_msgpack_is_decoded_or_refused(value: object) -> None:
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    for data in (packed, b"\x93\x01\x04" + packed):
        with contextlib.suppress(MalformedTransactionCommand):
            decode_transaction_command(data)
            TransactionShard().apply(data, 1, TERM)


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x93\x02\x00\x90", b"\x93\x01\x00\x91\x93\x00\x00\x00"]
)
def test_transaction_shard_snapshot_that_is_unreadable_changes_no_record(
    shard: TransactionShard, data: bytes
) -> None:
    do(shard, 1, Write.after("one", None, empty()))
    before = shard.snapshot()
    with pytest.raises(UnreadableShard):
        shard.restore(data)
    assert shard.snapshot() == before


def test_transaction_shard_snapshot_is_consistent_while_commands_are_applied(
    shard: TransactionShard,
) -> None:
    for number in range(200):
        do(shard, number + 1, Write.after(f"id-{number}", None, empty()))
    before = shard.snapshot()
    steps = shard.snapshot_steps()
    do(shard, 201, Write.after("id-0", shard.get("id-0"), None))
    do(shard, 202, Write.after("another", None, empty()))
    assert b"".join(run_to_end(steps)) == before != shard.snapshot()


def test_transaction_shard_snapshot_is_loaded_in_slices_and_replaces_the_records_at_the_end() -> (
    None
):
    shard, replica = TransactionShard(), TransactionShard()
    for number in range(1_000):
        do(shard, number + 1, Write.after(f"id-{number}", None, empty()))
    do(replica, 1, Write.after("old", None, empty()))
    steps = replica.restore_steps(shard.snapshot())
    for _ in range(1_000 // SLICE_RECORDS):
        next(steps)
        assert list(replica.records) == ["old"]
    run_to_end(steps)
    assert replica.records == shard.records
    assert replica.snapshot() == shard.snapshot()
