"""Test that Kafka's DumpLogSegments reads our logs (with ONCELOG_KAFKA=1)."""

import random
import re

import pytest

from oncelog.wire.control_record import ControlType

from ..interop.kafka_peer import run_tool
from ..log_batches import end_transaction

NOW_MS = 1_700_000_000_000

pytestmark = pytest.mark.kafka

COMPLAINTS = re.compile(
    r"mismatch|Found timestamp|isvalid: false|Exception|WARN|ERROR|invalid bytes"
)


def dump(paths, *options) -> str:
    done = run_tool(
        "org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, paths))
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert not COMPLAINTS.search(text), COMPLAINTS.search(text)
    return text


def fill(logs, log, steps=150):
    """Append random batches, compressed, idempotent and transactional, to many segments."""
    choices = random.Random(7)
    for step in range(steps):
        stamps = [NOW_MS + choices.randint(0, 500) + step * 100 for _ in range(1 + step % 4)]
        producer = step % 5
        if producer < 2:
            logs.lead(log, len(stamps), timestamps=stamps, compression=step % 5, epoch=step // 40)
            continue
        entry = log.producer_state.entry(producer)
        is_open = entry is not None and entry.transaction_first_offset >= 0
        if is_open and choices.random() < 0.4:
            kind, epoch = choices.choice(list(ControlType)), step // 40
            of_marker = {"at_ms": stamps[0], "coordinator_epoch": 3}
            end_transaction(log, producer, kind, epoch=epoch, now_ms=NOW_MS, **of_marker)
            continue
        sequence = entry.next_sequence if entry else 0
        guard = log.producer_state.begin_verification(producer, 0, sequence, now_ms=NOW_MS)
        logs.lead(
            log,
            len(stamps),
            timestamps=stamps,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer > 2,
            guard=guard if producer > 2 else None,
            epoch=step // 40,
        )


def check_all(logs, log):
    """Check that DumpLogSegments reads each file of a log, and prints the values in the log."""
    paths = sorted(logs.directory.iterdir())
    by_suffix = {
        suffix: [path for path in paths if path.suffix == suffix]
        for suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
    }
    assert all(by_suffix.values()), by_suffix
    text = dump(by_suffix[".log"], "--deep-iteration")
    dumped = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert dumped == list(range(log.log_end_offset))
    # In batch order the tool walks the log from every index entry and compares.
    dump(by_suffix[".index"])
    assert "passed sanity check" in dump(by_suffix[".index"], "--index-sanity-check")
    assert "passed sanity check" in dump(by_suffix[".timeindex"], "--index-sanity-check")
    dump(by_suffix[".timeindex"])
    producers = dump(by_suffix[".snapshot"][-1:])
    for entry in log.producer_state.entries():
        assert f"producerId: {entry.producer_id} producerEpoch: {entry.epoch}" in producers
    aborted = dump(by_suffix[".txnindex"])
    ours = [each for segment in log.segments for each in segment.transaction_index.all()]
    assert [int(offset) for offset in re.findall(r"lastOffset: (\d+)", aborted)] == [
        each.last_offset for each in ours
    ]


@pytest.mark.in_turn
def test_kafka_reads_a_closed_and_a_recovered_log_of_ours(logs):
    log = logs.open(segment_bytes=4000, index_interval_bytes=300)
    fill(logs, log)
    log.close()
    assert len(log.segments) > 3
    check_all(logs, log)
    log = logs.open(segment_bytes=4000, index_interval_bytes=300)  # all is rebuilt
    log.flushing.flush()
    check_all(logs, log)
    log.truncation.truncate_to(log.log_end_offset - 5)
    fill(logs, log, steps=20)
    log.close()
    check_all(logs, log)
