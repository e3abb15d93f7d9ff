"""Test the bad batches of the chaos load, with a false header or a wrong checksum."""

import random

import pytest
from crc32c import crc32c

from oncelog.proof.chaos.load.rough import LIES, YEAR_MS, Lie, _batch, _wrong_crc
from oncelog.wire.record_batch import CRC_COVERS_FROM, decode_header
from oncelog.wire.records import decode_batch


@pytest.mark.parametrize("lie", LIES)
def test_rough_load_batch_with_a_false_header_field_other_than_the_crc_has_a_valid_crc(
    lie: Lie,
) -> None:
    sound = _batch([1, 2], False)
    batch = bytearray(sound)
    lie(batch, random.Random(1))
    changed = decode_header(batch)
    assert changed != decode_header(sound)
    assert batch[61:] == sound[61:]
    is_right = changed.crc == crc32c(batch[CRC_COVERS_FROM:])
    assert is_right is (lie is not _wrong_crc)


def test_rough_load_batch_has_an_old_record_before_a_new_record() -> None:
    old, fresh = decode_batch(_batch([1, 2], True))
    assert fresh.timestamp - old.timestamp == YEAR_MS
