"""Test the search for valid batches after damage, and among bytes that look like batches."""

import struct
from pathlib import Path

import pytest

from oncelog.storage.segments import torn_tail
from oncelog.storage.segments.log_file import LogFile
from oncelog.storage.segments.torn_tail import is_followed_by_a_batch

from ..conftest import make_batch

NEXT = 7


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "00000000000000000000.log")


def is_followed(file: LogFile, data: bytes) -> bool:
    Path(file.path).write_bytes(data)
    return is_followed_by_a_batch(file, 0, len(data), NEXT)


def one(offset: int = NEXT, size: int = 10) -> bytes:
    return bytes(make_batch(base_offset=offset, size=size))


def damaged(batch: bytes, at: int = 70) -> bytes:
    return batch[:at] + bytes([batch[at] ^ 1]) + batch[at + 1 :]


def holding(value: bytes) -> bytes:
    """Return a batch of one record with this value."""
    batch = make_batch(base_offset=NEXT, size=len(value))
    at = bytes(batch).index(bytes(len(value)))
    batch[at : at + len(value)] = value
    return bytes(batch)


COPY = b"".join(one(NEXT + i) for i in range(40))  # as in a copy of a segment


@pytest.mark.parametrize("torn_at", [0, 5, 30, 61, 90])
def test_torn_batch_at_the_end_has_no_batch_after_it(file: LogFile, torn_at: int) -> None:
    assert not is_followed(file, one(size=200)[:torn_at])


@pytest.mark.parametrize("at", [0, 8, 16, 20, 60, 70])
def test_damaged_batch_in_the_middle_has_batches_after_it(file: LogFile, at: int) -> None:
    assert is_followed(file, damaged(one(), at) + one(NEXT + 1) + one(NEXT + 2))


@pytest.mark.parametrize("at", [0, 7, 10, 11, 16, 20, 23, 70])
def test_damaged_batch_before_a_torn_end_has_batches_after_it(file: LogFile, at: int) -> None:
    """A bit flipped, and later a kill tore the last batch, so whole batches lie in between."""
    many = b"".join(one(NEXT + 1 + i) for i in range(20))
    assert is_followed(file, damaged(one(), at) + many + one(NEXT + 21)[:-1])


@pytest.mark.parametrize("kept", [1, 100, 1_500])
def test_torn_batch_with_batches_inside_a_record_value_has_no_batch_after_it(
    file: LogFile, kept: int
) -> None:
    torn = holding(b"text" + COPY + b"x" * 2_000)
    assert not is_followed(file, torn[: len(torn) - kept])
    inside = torn.index(COPY) + len(COPY) - 30  # in the last of the batches in the value
    assert not is_followed(file, torn[:inside])


def test_batch_with_earlier_offsets_is_not_found_after_a_damaged_batch(file: LogFile) -> None:
    assert not is_followed(file, damaged(one()) + one(NEXT - 1))


def test_batches_beyond_the_searched_bytes_are_found_by_their_lengths(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torn_tail, "LOOKED_AT_BYTES_MAX", 300)
    many = b"".join(one(NEXT + 1 + i) for i in range(20))
    broken = damaged(one(), 8)  # the batch's length claims to end after the file
    assert is_followed(file, broken + many)
    assert not is_followed(file, broken + many[:-1])


def test_search_after_a_damaged_batch_with_malicious_bytes_is_bounded(
    file: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    check_crc = torn_tail.check_crc
    monkeypatch.setattr(
        torn_tail,
        "check_crc",
        lambda data, *rest: (checked.append(len(data)), check_crc(data, *rest)),
    )
    size = 1 << 20
    value = bytearray(size)
    for at in range(0, size, 64):  # each claims to be a batch up to the end
        struct.pack_into(">qiib", value, at, NEXT + 1, size - at - 12, 0, 2)
    assert not is_followed(file, bytes(value))
    assert sum(checked) <= torn_tail.CRC_BYTES_MAX
