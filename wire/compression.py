"""The four compressions of record batches, each with a limit on the decompressed size.

A few kilobytes can decompress to gigabytes, so nothing is decompressed without a limit. Output
above it raises DecompressedTooLarge, and no more memory than the limit is used. docs/decisions/0002
explains the choice of libraries.
"""

import gzip as gzip_module
import struct
import zlib

from .errors import InvalidRecord, KafkaError, UnsupportedCompressionType

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_GZIP_PIECE_BYTES = 16 * 1024
_ZSTD_WINDOW_BYTES_MAX = 128 * 1024 * 1024  # as in Java; memory is used only for actual output
_length = struct.Struct(">i")


class DecompressedTooLarge(InvalidRecord):
    """The decompressed data exceeds the caller's limit."""


def compress(codec: int, data: bytes) -> bytes:
    """Compress data in the format of Java's clients, or raise UnsupportedCompressionType."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip_module.compress(data, 6, mtime=0)
    if codec == SNAPPY:
        return _snappy(data)
    if codec == LZ4:
        import lz4.frame

        # Java refuses linked blocks.
        return lz4.frame.compress(
            data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False
        )
    if codec == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=3).compress(data)
    raise UnsupportedCompressionType(f"compression {codec} is not known")


def decompress(codec: int, data: bytes | memoryview, max_bytes: int) -> bytes:
    """Return the original bytes, at most max_bytes.

    Raises DecompressedTooLarge above that size, InvalidRecord for malformed data. With codec NONE
    the data is returned whatever its size.
    """
    if codec == NONE:
        return bytes(data)
    try:
        if codec == GZIP:
            return _gunzip(data, max_bytes)
        if codec == SNAPPY:
            return _unsnappy(bytes(data), max_bytes)
        if codec == LZ4:
            return _unlz4(bytes(data), max_bytes)
        if codec == ZSTD:
            return _unzstd(data, max_bytes)
    except InvalidRecord:
        raise
    except Exception as error:  # each library has its own errors for malformed input
        raise InvalidRecord(f"{CODEC_NAMES[codec]} data is broken: {error}") from error
    raise UnsupportedCompressionType(f"compression {codec} is not known")


def _too_large(codec: int, max_bytes: int) -> KafkaError:
    return DecompressedTooLarge(f"{CODEC_NAMES[codec]} data unfolds to more than {max_bytes} bytes")


def _gunzip(data: bytes | memoryview, max_bytes: int) -> bytes:
    """Decompress gzip data, which may have several members.

    The data is passed in pieces, because zlib copies the bytes that follow a member.
    """
    view = memoryview(data)
    unfolded = bytearray()
    position = 0
    while position < len(view):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            piece = member.unconsumed_tail or view[position : position + _GZIP_PIECE_BYTES]
            if not piece:
                raise InvalidRecord("gzip data is cut short")
            if not member.unconsumed_tail:
                position += len(piece)
            unfolded += member.decompress(piece, max_bytes + 1 - len(unfolded))
            if len(unfolded) > max_bytes:
                raise _too_large(GZIP, max_bytes)
        position -= len(member.unused_data)
    return bytes(unfolded)


def _snappy(data: bytes) -> bytes:
    import cramjam

    pieces = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_length.pack(len(block)), block)
    return b"".join(pieces)


def _unsnappy(data: bytes, max_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, max_bytes)
    pieces: list[bytes] = []
    room, position = max_bytes, len(_XERIAL_HEADER)
    while position < len(data):
        length = _length.unpack_from(data, position)[0]
        position += _length.size
        if not 0 <= length <= len(data) - position:
            raise InvalidRecord("a snappy block goes beyond its data")
        piece = _unsnappy_block(data[position : position + length], room)
        pieces.append(piece)
        room -= len(piece)
        position += length
    return b"".join(pieces)


def _unsnappy_block(block: bytes, max_bytes: int) -> bytes:
    import cramjam

    # A raw block begins with its size as a varint, and the library would allocate that size.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise InvalidRecord("a snappy block has no size")
    if size > max_bytes:
        raise _too_large(SNAPPY, max_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _unlz4(data: bytes, max_bytes: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    unfolded = decompressor.decompress(data, max_length=max_bytes + 1)
    if len(unfolded) > max_bytes:
        raise _too_large(LZ4, max_bytes)
    if not decompressor.eof:
        raise InvalidRecord("lz4 data is cut short")
    return unfolded


def _unzstd(data: bytes | memoryview, max_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        unfolded = reader.read(max_bytes + 1)
    if len(unfolded) > max_bytes:
        raise _too_large(ZSTD, max_bytes)
    return unfolded
