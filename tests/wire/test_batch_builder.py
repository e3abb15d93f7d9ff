"""Test that a batch built record by record equals a batch encoded from a list of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire.batch_builder import RECORD_BYTES_EXTRA, BatchBuilder, size_of_headers
from oncelog.wire.compression import CODEC_NAMES
from oncelog.wire.record_batch import check_crc, decode_header
from oncelog.wire.records import Record, decode_batch, encode_batch

some_bytes = st.none() | st.binary(max_size=300) | st.sampled_from([b"x" * 8191, b"y" * 8192])
some_headers = st.lists(
    st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3
).map(tuple)
some_records = st.lists(
    st.tuples(st.integers(-1, 2**45), some_bytes, some_bytes, some_headers), min_size=1, max_size=20
)


@given(some_records, st.integers(-1, 2**40), st.integers(-1, 2**15 - 1), st.booleans())
def test_batch_builder_bytes_equal_the_record_encoder_bytes(
    rows, producer_id, epoch, transactional
):
    builder = BatchBuilder()
    for timestamp, key, value, headers in rows:
        before = builder.size_bytes
        builder.append(timestamp, key, value, headers)
        most = len(key or b"") + len(value or b"") + RECORD_BYTES_EXTRA + size_of_headers(headers)
        assert builder.size_bytes - before <= most
    batch = builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=7,
        is_transactional=transactional,
    )
    records = [Record(i, *row) for i, row in enumerate(rows)]
    assert bytes(batch) == encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=7,
        transactional=transactional,
    )
    assert len(batch) == builder.size_bytes


def test_batch_builder_with_each_codec_decodes_to_the_same_records():
    for codec in range(len(CODEC_NAMES)):
        builder = BatchBuilder()
        for i in range(3_000):  # beyond the table of short varints
            builder.append(1_000 + i, b"%d" % i, b"some text " * 5)
        batch = builder.build(compression=codec)
        header = decode_header(batch)
        check_crc(batch, 0, header)
        assert (header.compression, header.record_count) == (codec, 3_000)
        assert [r.key for r in decode_batch(batch)] == [b"%d" % i for i in range(3_000)]


def test_batch_builder_after_a_refused_record_is_unchanged():
    """The refused record perhaps has a time far in the future, which would delay retention."""
    built = []
    for is_refused in (False, True):
        builder = BatchBuilder()
        builder.append(5, None, b"1")
        if is_refused:
            with pytest.raises(TypeError):
                builder.append(2**62, None, b"2", [("name", "text")])  # type: ignore[list-item]
        builder.append(6, None, b"3")
        built.append(builder.build())
    assert built[0] == built[1]
