"""The records of one batch, decompressed on the event loop or in a thread.

A few kilobytes may decompress to megabytes, which is not known in advance. So a small batch is
decompressed on the loop, up to a small limit. A larger batch, or one that exceeds the limit, is
decompressed in a thread, without the interpreter lock. A caller that reads such records in slices
holds a place (`BrokerServices.unfolded`) while they are in memory, which limits their number.
"""

import asyncio

from ...wire.compression import NONE, DecompressedTooLarge, decompress
from ...wire.record_batch import HEADER_BYTES, BatchHeader
from ...wire.records import DECOMPRESSED_BYTES_MAX

AT_ONCE_BYTES_MAX = 64 * 1024  # the compressed size of a batch
UNFOLDED_AT_ONCE_BYTES_MAX = 32 * 1024
PLACES = 2  # each with at most DECOMPRESSED_BYTES_MAX


def contents_at_once(batch: memoryview, header: BatchHeader) -> bytes | None:
    """Return the decompressed records of a batch, or None if this would take too long.

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
    """Return the decompressed records of any batch, in a thread if needed.

    Raises InvalidRecord.
    """
    at_once = contents_at_once(batch, header)
    if at_once is not None:
        return at_once
    loop = asyncio.get_running_loop()
    data = batch[HEADER_BYTES:]
    return await loop.run_in_executor(
        None, decompress, header.compression, data, DECOMPRESSED_BYTES_MAX
    )
