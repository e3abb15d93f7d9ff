"""Test that a log that crashed at any fault point has the state before or after a step."""

import pytest

from oncelog.wire.record_batch import decode_header

from ..log_batches import batches_in

NOW_MS = 1_700_000_000_000
OPTIONS = {"segment_bytes": 400, "index_interval_bytes": 60, "retention_bytes": 900}


class Crash(Exception):
    pass


class FaultPoints:
    """A callback for fault points, which records their names, and raises Crash at call `crash_at`.

    Calls are counted from 0.
    """

    def __init__(self, crash_at=None):
        self.crash_at = crash_at
        self.names: list[str] = []

    def __call__(self, name):
        self.names.append(name)
        if len(self.names) - 1 == self.crash_at:
            raise Crash


def life_of(logs, log):
    """Return the steps of a log's history, each as a function without arguments."""

    def append(n, epoch):
        return lambda: logs.lead(
            log,
            1 + n % 3,
            epoch=epoch,
            producer_id=n % 2,
            producer_epoch=0,
            base_sequence=log.producer_state.entry(n % 2).next_sequence
            if log.producer_state.entry(n % 2)
            else 0,
        )

    yield from (append(n, n // 4) for n in range(9))
    yield log.flushing.flush
    yield lambda: log.truncation.truncate_to(7)
    yield from (append(n, 5 + n // 4) for n in range(12))
    yield lambda: log.advance_high_watermark(log.log_end_offset)
    yield lambda: log.retention.delete_old_segments(NOW_MS)
    yield from (append(n, 9) for n in range(4))
    yield log.flushing.flush
    yield lambda: log.truncation.truncate_fully_and_start_at(100)
    yield from (append(n, 10) for n in range(4))
    yield log.close


def is_between(found, before, after):
    """Return whether recovered batches are those before a step, after the step, or in between."""
    cuts_the_end = before[: len(found)] == found and found[: len(after)] == after
    cuts_the_start = (
        found == before[len(before) - len(found) :] and after == (found[len(found) - len(after) :])
    )
    return found in (before, after) or cuts_the_end or cuts_the_start


@pytest.mark.in_turn
def test_log_after_a_crash_at_any_fault_point_has_every_finished_step(logs, tmp_path):
    undisturbed = FaultPoints()
    log = type(logs)(tmp_path / "undisturbed").open(fault_point=undisturbed, **OPTIONS)
    for step in life_of(logs, log):
        step()
    assert {name.split(".")[1] for name in undisturbed.names} >= {
        "append", "roll", "snapshot", "truncate", "delete", "flush", "high-watermark",
    }  # fmt: skip
    for crash_at in range(len(undisturbed.names)):
        maker = type(logs)(tmp_path / str(crash_at))
        log = maker.open(fault_point=FaultPoints(crash_at), **OPTIONS)
        before = after = []
        recovery_point = 0
        reference = type(logs)(tmp_path / f"{crash_at}-reference").open(**OPTIONS)
        try:
            for step, same in zip(life_of(logs, log), life_of(logs, reference), strict=True):
                before = batches_in(reference)
                recovery_point = log.flushing.recovery_point
                same()
                after = batches_in(reference)
                step()
        except Crash:
            pass
        again = maker.open(recovery_point=recovery_point, **OPTIONS)
        found = batches_in(again)
        name = undisturbed.names[crash_at]
        assert is_between(found, before, after), (crash_at, name)
        for producer in (0, 1):
            headers = [h for h in map(decode_header, found) if h.producer_id == producer]
            if headers:
                entry = again.producer_state.entry(producer)
                assert entry.last_data_offset == headers[-1].last_offset, (crash_at, name)
        epochs = {again.leader_epochs.epoch_for(decode_header(b).base_offset) for b in found}
        assert epochs == {decode_header(b).partition_leader_epoch for b in found}
        logs.lead(again, 1, epoch=99)
