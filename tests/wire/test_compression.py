"""Test the compression codecs against other libraries, and their limits of size and memory."""

import contextlib
import gzip
import os
import random
import struct
import time
import tracemalloc

import aiokafka.codec as theirs
import cramjam
import lz4.frame
import pytest
import zstandard

from oncelog.wire.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from oncelog.wire.errors import InvalidRecord, UnsupportedCompressionType

MIB = 1024 * 1024
CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
every_codec = pytest.mark.parametrize("codec", CODECS)
SAMPLES = [b"", b"a", b"json " * 20_000, random.Random(1).randbytes(100_000)]
THEIR_ENCODERS = {
    GZIP: theirs.gzip_encode,
    SNAPPY: theirs.snappy_encode,
    LZ4: theirs.lz4_encode,
    ZSTD: theirs.zstd_encode,
}
THEIR_DECODERS = {
    GZIP: theirs.gzip_decode,
    SNAPPY: theirs.snappy_decode,
    LZ4: theirs.lz4_decode,
    ZSTD: theirs.zstd_decode,
}


@every_codec
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_compressed_data_is_exchanged_with_other_libraries(codec: int, data: bytes) -> None:
    written = compress(codec, data)
    assert decompress(codec, memoryview(written), len(data)) == data
    assert decompress(codec, bytes(THEIR_ENCODERS[codec](data)), len(data)) == data
    if data:  # some of the other decoders fail on empty data
        assert bytes(THEIR_DECODERS[codec](written)) == data


def test_compression_none_returns_the_data_unchanged() -> None:
    assert compress(NONE, b"abc") == b"abc"
    assert decompress(NONE, memoryview(b"abc"), 3) == b"abc"


@pytest.mark.parametrize("codec", [5, 7, -1])
def test_compression_with_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"x")
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"x", 10)


def test_lz4_frames_have_independent_blocks_as_java_requires() -> None:
    flags = compress(LZ4, b"x" * 200_000)[4]
    assert flags >> 6 == 1  # version
    assert flags & 0x20  # independent blocks


def test_snappy_is_written_in_java_framing_and_is_also_read_without_framing() -> None:
    data = os.urandom(1000) * 100
    written = compress(SNAPPY, data)
    assert written.startswith(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_gzip_data_of_several_members_is_read_as_one_stream() -> None:
    parts = [b"abc", b"", os.urandom(50_000), b"z" * 300_000]
    data = b"".join(gzip.compress(part) for part in parts)
    assert decompress(GZIP, data, 400_000) == b"".join(parts)


def test_zstd_data_of_the_highest_level_is_decompressed() -> None:
    compressor = zstandard.ZstdCompressor(level=22).compressobj()  # a window of 128 MiB
    data = compressor.compress(b"x" * 5000) + compressor.flush()
    assert decompress(ZSTD, data, 5000) == b"x" * 5000


@every_codec
def test_decompressed_size_limit_is_inclusive(codec: int) -> None:
    data = b"abc" * 50_000
    assert decompress(codec, compress(codec, data), len(data)) == data
    for bound in (len(data) - 1, 100, 0):
        with pytest.raises(InvalidRecord):
            decompress(codec, compress(codec, data), bound)


def bomb(codec: int, size: int) -> bytes:
    zeros = bytes(size)
    if codec == LZ4:  # with its size in the frame, which a library might trust
        return lz4.frame.compress(zeros, store_size=True)
    return compress(codec, zeros)


@every_codec
def test_decompression_bomb_is_refused_within_the_memory_of_the_limit(codec: int) -> None:
    data = bomb(codec, 128 * MIB)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak counts from here
    before = resident_peak_bytes()
    started = time.process_time()
    with pytest.raises(InvalidRecord):
        decompress(codec, data, 8 * MIB)
    assert resident_peak_bytes() - before < 24 * MIB
    assert time.process_time() - started < 2


def resident_peak_bytes() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_snappy_data_with_a_false_size_is_refused_without_allocating_that_size() -> None:
    lie = b"\xff\xff\xff\xff\x0f" + b"\0" * 20
    tracemalloc.start()
    try:
        for data in (lie, compress(SNAPPY, b"")[:16] + struct.pack(">i", len(lie)) + lie):
            with pytest.raises(InvalidRecord):
                decompress(SNAPPY, data, MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [-1, 5, 2**31 - 1])
def test_snappy_block_with_a_length_beyond_its_data_is_refused(length: int) -> None:
    data = compress(SNAPPY, b"")[:16] + struct.pack(">i", length) + b"\x01"
    with pytest.raises(InvalidRecord):
        decompress(SNAPPY, data, MIB)


def test_gzip_data_of_many_empty_members_takes_linear_time() -> None:
    data = gzip.compress(b"") * 50_000
    started = time.process_time()
    assert decompress(GZIP, data, MIB) == b""
    assert time.process_time() - started < 5  # quadratic: minutes


@every_codec
def test_compressed_data_with_any_damage_is_refused_or_decompressed(codec: int) -> None:
    rng = random.Random(codec)
    sound = compress(codec, rng.randbytes(3000) + b"z" * 3000)
    for _ in range(2000):
        data = bytearray(sound[: rng.randrange(len(sound) + 1)])
        for _ in range(rng.choice([0, 1, 1, 3])):
            end = min(len(data), rng.choice([20, 6000]))  # headers are hit as often as the rest
            if end:
                data[rng.randrange(end)] = rng.randrange(256)
        with contextlib.suppress(InvalidRecord):
            assert len(decompress(codec, bytes(data), 10_000)) <= 10_000
