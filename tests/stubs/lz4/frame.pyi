"""What is used of lz4, which brings no types."""

BLOCKSIZE_MAX64KB: int

def compress(
    data: bytes | bytearray | memoryview,
    compression_level: int = ...,
    block_size: int = ...,
    content_checksum: int = ...,
    block_linked: bool = ...,
    store_size: bool = ...,
) -> bytes: ...

class LZ4FrameDecompressor:
    eof: bool
    def decompress(self, data: bytes | bytearray | memoryview, max_length: int = ...) -> bytes: ...
