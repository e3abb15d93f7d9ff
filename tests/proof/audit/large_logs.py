"""A log directory of any size for measuring the audit. --plant makes one record wrong.

python -m tests.proof.audit.large_logs /tmp/large --records 10000000
time python -m oncelog.proof.audit --logs 1=/tmp/large
"""

import argparse
from pathlib import Path

from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

from .log_files import HIGH_WATERMARKS

BATCH, TRANSACTION, PARTITIONS = 500, 8, 6  # records; batches; partitions
SEGMENT_BYTES = 64 << 20
TIME_MS = 1_700_000_000_000


def write_partition(place: Path, partition: int, records: int, *, planted: bool) -> int:
    """Write transactions of one producer, abort every tenth, and return the log end offset.

    With `planted` a sequence number is missing.
    """
    place.mkdir(parents=True)
    offset = epoch = sequence = written = 0
    file = (place / f"{0:020}.log").open("wb")
    while written < records:
        for number in range(TRANSACTION):
            if file.tell() > SEGMENT_BYTES:
                file.close()
                file = (place / f"{offset:020}.log").open("wb")
            skipped = int(planted and written == 0 and number == 3)
            batch = encode_batch(
                [Record(offset + n, TIME_MS, b"key %d" % (n % 50), VALUE) for n in range(BATCH)],
                transactional=True, producer_id=1_000 + partition, producer_epoch=epoch,
                base_sequence=sequence + skipped, leader_epoch=0,
            )  # fmt: skip
            file.write(batch)
            assert decode_header(batch).record_count == BATCH
            offset, sequence = offset + BATCH, sequence + BATCH + skipped
        written += BATCH * TRANSACTION
        kind = (
            ControlType.ABORT if written // (BATCH * TRANSACTION) % 10 == 0 else ControlType.COMMIT
        )
        epoch, sequence = epoch + 1, 0  # transactions V2
        if epoch == 30_000:
            raise SystemExit("too many transactions for one producer")
        file.write(encode_marker(
            kind, producer_id=1_000 + partition, producer_epoch=epoch, coordinator_epoch=1,
            timestamp_ms=TIME_MS, base_offset=offset, leader_epoch=0,
        ))  # fmt: skip
        offset += 1
    file.close()
    return offset


VALUE = b"the value of a record, forty bytes long."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--plant", action="store_true")
    options = parser.parse_args()
    lines: list[str] = []
    for partition in range(PARTITIONS):
        place = options.directory / f"large-{partition}"
        end = write_partition(
            place, partition, options.records // PARTITIONS, planted=options.plant and not partition
        )
        lines.append(f"large {partition} {end}")
    content = "\n".join(["0", str(len(lines)), *lines, ""])
    (options.directory / HIGH_WATERMARKS).write_text(content)


if __name__ == "__main__":
    main()
