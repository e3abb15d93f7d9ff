"""Test that the dump describes a segment in words and detects damage."""

from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.deploy.inspect.log_dump import dump_segment, segments
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.records import Record, encode_batch


def batch(base_offset: int, count: int = 3, **options) -> bytes:
    records = [Record(base_offset + i, 5, b"k", b"v%d" % i) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=4, **options)


def words(data: bytes) -> list[str]:
    return [b.words() for b in dump_segment("0.log", data)]


def test_log_dump_shows_batches_producers_and_markers():
    marker = encode_marker(
        ControlType.ABORT,
        producer_id=9,
        producer_epoch=1,
        coordinator_epoch=6,
        timestamp_ms=5,
        base_offset=3,
    )
    first = batch(0, producer_id=9, producer_epoch=1, base_sequence=20, transactional=True)
    lines = words(first + marker)
    assert "offsets 0-2" in lines[0]
    assert "producer 9 epoch 1" in lines[0]
    assert "sequences 20-22" in lines[0]
    assert "in a transaction" in lines[0]
    assert "ABORT marker, coordinator epoch 6" in lines[1]


def test_log_dump_of_a_batch_with_a_flipped_bit_marks_the_batch_bad():
    data = bytearray(batch(0))
    data[-1] ^= 1
    assert "BAD" in words(bytes(data))[0]


def test_log_dump_of_a_batch_with_an_unknown_codec_marks_the_batch_bad():
    data = bytearray(batch(0))
    data[22] |= 7  # the low byte of the attributes
    (line,) = words(bytes(data))
    assert "bytes, ?" in line and "BAD" in line


def test_log_dump_of_a_batch_below_the_next_offset_marks_the_batch_bad():
    assert "BAD: offset 0 after 2" in words(batch(0) + batch(0))[1]


def test_log_dump_command_of_damaged_files_shows_their_other_batches(tmp_path, capsys):
    """A batch header with a wrong magic byte, a torn batch at the end, and an intact file."""
    damaged, size = bytearray(batch(0) + batch(3) + batch(6)), len(batch(0))
    damaged[size + 16] = 7
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for name, data in (("0", damaged), ("9", (batch(9) + batch(12))[:-5]), ("15", batch(15))):
        (partition / f"{name:0>20}.log").write_bytes(data)
    assert run(["log", "dump", str(partition)]) == 1
    shown = capsys.readouterr()
    assert [line.split(" · ")[0] for line in shown.out.splitlines() if "offsets" in line] == [
        "  offsets 0-2", "  offsets 9-11", "  offsets 15-17",
    ]  # fmt: skip
    first, second = shown.err.splitlines()
    assert first.startswith(f"{0:0>20}.log: no batch: magic 7") and f"position {size};" in first
    assert second == f"{9:0>20}.log: {size - 5} bytes after the last whole batch"


@pytest.mark.parametrize("is_last", [False, True])
def test_log_dump_exit_code_is_1_for_a_torn_batch_unless_it_ends_the_log(tmp_path, is_last, capsys):
    """A damaged length in an older file hides the batches behind it."""
    torn = bytearray(batch(0) + batch(3) + batch(6))
    torn[len(batch(0)) + 8] = 0x7F  # the most significant byte of the second batch's length
    partition = tmp_path / "orders-0"
    partition.mkdir()
    (partition / f"{0:0>20}.log").write_bytes(torn)
    if not is_last:
        (partition / f"{9:0>20}.log").write_bytes(batch(9))
    assert run(["log", "dump", str(partition)]) == (not is_last)
    assert run(["log", "dump", str(partition / f"{0:0>20}.log")]) == (not is_last)
    assert f"{2 * len(batch(0))} bytes after the last whole batch" in capsys.readouterr().err


def test_log_dump_of_a_torn_file_with_another_name_ends_with_exit_code_0(tmp_path, capsys):
    (tmp_path / "copy").write_bytes((batch(0) + batch(3))[:-5])
    assert run(["log", "dump", str(tmp_path / "copy")]) == 0
    assert f"{len(batch(0)) - 5} bytes after the last whole batch" in capsys.readouterr().err


def test_log_dump_of_the_last_file_that_is_rolled_meanwhile_ends_with_exit_code_0(
    tmp_path, monkeypatch
):
    """A broker has appended a part of a batch when the file is read, and rolls the log then."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    file = partition / f"{0:0>20}.log"
    file.write_bytes((batch(0) + batch(3))[:-5])
    read_bytes = Path.read_bytes

    def read_and_roll(self: Path) -> bytes:
        content = read_bytes(self)
        (partition / f"{6:0>20}.log").write_bytes(batch(6))
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_roll)
    assert run(["log", "dump", str(file)]) == 0


def test_log_dump_of_files_that_are_deleted_meanwhile_shows_the_others(
    tmp_path, monkeypatch, capsys
):
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for offset in (0, 3, 6):
        (partition / f"{offset:0>20}.log").write_bytes(batch(offset))
    read_bytes = Path.read_bytes

    def read_and_delete(self: Path) -> bytes:
        content, second = read_bytes(self), partition / f"{3:0>20}.log"
        if second.exists():
            second.rename(f"{second}.deleted")
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_delete)
    assert run(["log", "dump", str(partition)]) == 0
    shown = capsys.readouterr()
    assert [line.split(" · ")[0] for line in shown.out.splitlines() if "offsets" in line] == [
        "  offsets 0-2", "  offsets 6-8",
    ]  # fmt: skip
    assert shown.err.splitlines() == [f"{3:0>20}.log was deleted meanwhile"]


def test_log_dump_with_the_records_option_shows_decoded_records(tmp_path):
    (dumped,) = dump_segment("x", batch(7), deep=True)
    assert [r.offset for r in dumped.records] == [7, 8, 9]
    (tmp_path / "00000000000000000007.log").write_bytes(batch(7))
    (tmp_path / "00000000000000000007.index").write_bytes(b"")
    assert [f.name for f in segments(tmp_path)] == ["00000000000000000007.log"]
