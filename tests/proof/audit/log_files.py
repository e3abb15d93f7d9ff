"""Write rows as log files of nodes, with real batches, segments and checkpoints."""

import itertools
from pathlib import Path

from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.records import Record, encode_batch

from .model_log import TIME_MS, ModelLog, Row

HIGH_WATERMARKS, LOG_STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"


def batch_of(rows: list[Row]) -> bytes:
    """Return the bytes of one batch with these rows, or of a marker."""
    first = rows[0]
    if first.is_control:
        assert first.coordinator_epoch is not None
        return encode_marker(
            ControlType.COMMIT if first.control_type == "commit" else ControlType.ABORT,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            coordinator_epoch=first.coordinator_epoch,
            timestamp_ms=TIME_MS,
            base_offset=first.offset,
            leader_epoch=first.leader_epoch,
        )
    return encode_batch(
        [Record(row.offset, TIME_MS, row.key, row.value) for row in rows],
        leader_epoch=first.leader_epoch,
        transactional=first.is_transactional,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.sequence,
    )


def belongs(row: Row) -> tuple[object, ...]:
    """Return the key that is equal for neighbouring rows of one batch."""
    return (row.batch_crc, row.is_control, row.is_transactional, row.producer_id,
            row.producer_epoch, row.leader_epoch, row.value == b"another")  # fmt: skip


def batches_of(rows: list[Row]) -> list[bytes]:
    """Return the rows of one log as batches, in order.

    A row with an offset out of order begins a batch of its own.
    """
    made: list[bytes] = []
    for _, group in itertools.groupby(rows, belongs):
        together: list[Row] = []
        for row in group:
            if together and row.offset <= together[-1].offset:
                made.append(batch_of(together))
                together = []
            together.append(row)
        made.append(batch_of(together))
    return made


def write_logs(log_model: ModelLog, folder: Path) -> None:
    """Write each copy of a log to FOLDER/node-N, beside the files of other logs."""
    for replica in range(1, log_model.replicas + 1):
        node = folder / f"node-{replica}"
        for partition, (start, end) in log_model.ends.items():
            rows = [r for r in log_model.rows if (r.replica, r.partition) == (replica, partition)]
            place = node / f"{log_model.topic}-{partition}"
            place.mkdir(parents=True)
            half = len(batches := batches_of(rows)) // 2
            cut = int.from_bytes(batches[half][:8], "big")
            parts = {start: batches[:half], cut: batches[half:]} if half else {start: batches}
            for base, content in parts.items():
                (place / f"{base:020}.log").write_bytes(b"".join(content))
            for file, offset in ((HIGH_WATERMARKS, end), (LOG_STARTS, start)):
                lines = (
                    (node / file).read_text().split("\n")[2:-1] if (node / file).exists() else []
                )
                lines.append(f"{log_model.topic} {partition} {offset}")
                (node / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
