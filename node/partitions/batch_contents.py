"""The records of one batch, decompressed where that keeps nobody.

A few kilobytes can unfold to megabytes, which nobody knows before. So a small batch is unfolded
where one stands, up to a small bound; what is larger, or turns out to be, goes to a thread:
decompression does not hold the interpreter's lock. Who goes through such contents, in slices, holds
a place (`BrokerServices.unfolded`) as long as they are in memory, so that they are few.
"""

import asyncio

from ...wire.compression import NONE, DecompressedTooLarge, decompress
from ...wire.record_batch import HEADER_BYTES, BatchHeader
from ...wire.records import DECOMPRESSED_BYTES_MAX

AT_ONCE_BYTES_MAX = 64 * 1024  # of a batch
UNFOLDED_AT_ONCE_BYTES_MAX = 32 * 1024
PLACES = 2  # of DECOMPRESSED_BYTES_MAX each


def contents_at_once(batch: memoryview, header: BatchHeader) -> bytes | None:
    """What stands behind the header of one whole batch, None when that takes too long.

    Raises InvalidRecord.
    """
    if len(batch) > AT_ONCE_BYTES_MAX:
        return None
    data = batch[HEADER_BYTES:]
    if header.compression == NONE:
        return bytes(data)
    try:
        return decompress(header.compression, data, UNFOLDED_AT_ONCE_BYTES_MAX)
    except DecompressedTooLarge:
        return None


async def contents(batch: memoryview, header: BatchHeader) -> bytes:
    """The same, however long it takes. Raises InvalidRecord."""
    at_once = contents_at_once(batch, header)
    if at_once is not None:
        return at_once
    loop = asyncio.get_running_loop()
    data = batch[HEADER_BYTES:]
    return await loop.run_in_executor(
        None, decompress, header.compression, data, DECOMPRESSED_BYTES_MAX
    )
