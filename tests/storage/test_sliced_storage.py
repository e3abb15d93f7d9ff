"""Test that long work on a log is done in steps, during which the log is used."""

import random
from itertools import pairwise

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage import local_log
from oncelog.storage.producers.snapshot import decode, encode
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.wire.record_batch import decode_header

from ..present import present

NOW_MS = 1_700_000_000_000


@pytest.fixture
def header(batch):
    """Return a function that makes the header of a producer's batch."""
    one = decode_header(batch(producer_id=0, producer_epoch=0, base_sequence=0))

    def make(producer_id, sequence=0):
        return one._replace(producer_id=producer_id, base_sequence=sequence)

    return make


@pytest.mark.parametrize("seed", range(5))
def test_producer_snapshot_encoded_in_steps_equals_the_state_at_its_start(header, seed):
    choices = random.Random(seed)
    table = ProducerStateTable()
    ids = choices.sample(range(100_000), 5_000)
    for offset, producer_id in enumerate(ids):
        table.append(header(producer_id), offset, NOW_MS)
    expected = encode(table.snapshot_entries())
    cut = table.begin_snapshot()
    steps, offset, count = cut.encode(), table.end_offset, 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content = end.value
            break
        count += 1
        for _ in range(50):
            producer_id = choices.choice([*ids[:500], choices.randrange(200_000)])
            entry = table.entry(producer_id)
            sequence = entry.next_sequence if entry else 0
            table.append(header(producer_id, sequence), offset, NOW_MS)
            table.append_marker(
                ids[offset % 5_000], 7, 0, is_aborted=True, offset=offset + 1, timestamp=1,
                now_ms=NOW_MS,
            )  # fmt: skip
            offset += 2
        if count == 10:
            run_to_end(table.expiring(NOW_MS + 10_000, 5_000))
    assert content == expected
    assert count > 5_000 // 128


def test_producers_beyond_the_maximum_are_evicted_in_steps_except_busy_producers(header):
    table = ProducerStateTable(producers_max=5_000)
    transactional = header(1)._replace(attributes=0x10)
    table.append(transactional, 0, NOW_MS)
    before, most = 1, 0
    for offset in range(1, 40_000, 2):
        table.append(header(2, offset // 2), offset, NOW_MS)
        table.append(header(offset + 2), offset + 1, NOW_MS)
        most, before = max(most, before - len(table)), len(table)
        assert len(table) <= 5_000
    assert most <= 1024 // 16 + 1
    assert present(table.entry(1)).transaction_first_offset == 0
    assert len(present(table.entry(2)).batches) == 5
    assert all(table.entry(offset + 2) for offset in range(39_001, 40_000, 2))


def test_expired_producers_are_removed_a_few_at_a_time(header):
    table = ProducerStateTable()
    for offset in range(3_000):
        table.append(header(offset), offset, NOW_MS)
    steps, sizes = table.expiring(NOW_MS + 10, 10), [3_000]
    for _ in steps:
        sizes.append(len(table))
        table.append(header(2_999), 3_000, NOW_MS + 5)
    assert len(table) == 1
    assert max(before - after for before, after in pairwise(sizes)) <= 256


def many_producers(logs, log, count):
    for producer_id in range(count):
        logs.lead(log, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def test_snapshot_of_many_producers_is_not_written_inside_an_append(logs, monkeypatch):
    monkeypatch.setattr(local_log, "SNAPSHOT_AT_ONCE_PRODUCERS_MAX", 10)
    log = logs.open()
    many_producers(logs, log, 300)
    log.roll(NOW_MS)
    assert log.local.snapshot_needed
    assert not list(logs.directory.glob("*.snapshot"))
    steps = log.local.snapshotting()
    next(steps)
    logs.lead(log, producer_id=5, producer_epoch=0, base_sequence=1)
    run_to_end(steps)
    assert not log.local.snapshot_needed
    (path,) = logs.directory.glob("*.snapshot")
    assert path.name == f"{300:020d}.snapshot"
    assert {entry.last_sequence for entry in decode(path.read_bytes())} == {0}
    assert logs.open().producer_state.entry(5).last_sequence == 1


def test_producer_snapshot_of_a_log_truncated_meanwhile_is_not_written(logs, monkeypatch):
    monkeypatch.setattr(local_log, "SNAPSHOT_AT_ONCE_PRODUCERS_MAX", 10)
    for cut in ("truncate_to", "truncate_fully_and_start_at"):
        log = logs.open()
        many_producers(logs, log, 300)
        steps = log.local.snapshotting()
        next(steps)
        getattr(log.truncation, cut)(100)
        run_to_end(steps)
        assert not list(logs.directory.glob("*.snapshot"))


def test_producer_snapshot_finished_before_the_rebuild_after_a_truncation_is_not_written(
    logs, monkeypatch
):
    monkeypatch.setattr(local_log, "SNAPSHOT_AT_ONCE_PRODUCERS_MAX", 1)
    log = logs.open()
    for producer in range(500):
        logs.lead(log, producer_id=producer, producer_epoch=0, base_sequence=0)
    snapshot, truncation = log.local.snapshotting(), log.truncation.truncating_to(400)
    next(snapshot)
    next(truncation)
    run_to_end(snapshot)
    run_to_end(truncation)
    for producer in range(500, 700):
        logs.lead(log, producer_id=producer, producer_epoch=0, base_sequence=0)
    again = logs.open()  # as after a kill
    assert again.log_end_offset == 600
    assert [entry.producer_id for entry in again.producer_state.entries()] == [
        *range(400), *range(500, 700)
    ]  # fmt: skip


def test_snapshot_of_many_producers_is_repeated_only_after_many_batches(logs, monkeypatch):
    monkeypatch.setattr(local_log, "SNAPSHOT_AT_ONCE_PRODUCERS_MAX", 10)
    monkeypatch.setattr(local_log, "SNAPSHOT_INTERVAL_BYTES", 1 << 20)
    log = logs.open()
    many_producers(logs, log, 300)
    assert not log.local.snapshot_needed
    for _ in range(4 * 300):
        logs.lead(log)
    assert log.local.snapshot_needed


def state(log):
    producers = log.producer_state
    return producers.snapshot_entries(), [
        (entry.producer_id, entry.batches) for entry in producers.entries()
    ]


@pytest.mark.parametrize("who", ["steps", "leader", "follower", "reader", "roll", "close"])
def test_producer_state_read_after_a_truncation_has_no_removed_producers(logs, batch, who, log):
    """After a truncation the producer state is rebuilt in steps, or at once if it is needed."""
    for sequence in range(1_000):
        logs.lead(log, producer_id=sequence % 3, producer_epoch=0, base_sequence=sequence // 3)
    steps = log.truncation.truncating_to(700)
    next(steps)
    assert log.log_end_offset == 700
    match who:
        case "steps":
            run_to_end(steps)
        case "leader":
            log.assign_leader_epoch(5)
        case "follower":
            log.append_as_follower(batch(base_offset=700), now_ms=NOW_MS)
        case "reader":
            assert log.last_stable_offset == 0
        case "roll":
            log.roll(NOW_MS)
        case "close":
            log.close()
    assert log.producer_state.entry(0).last_sequence == 233
    found = state(log)
    run_to_end(steps)
    assert state(log) == found == state(logs.open())
