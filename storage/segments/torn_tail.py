"""Where a log stops being readable: is it the torn end of its last write, or damage?

What a process wrote last may be torn when it is killed; nothing whole lies behind it then. A whole
batch behind what cannot be read says that this was whole, too.
"""

from ...wire.errors import CorruptMessage
from ...wire.record_batch import HEADER_BYTES, MAGIC, check_crc, decode_header
from ..topic_configs import INT_MAX
from .log_file import LogFile

LOOKED_AT_BYTES_MAX = 4 << 20
_MAGIC_AT = 16


def is_followed_by_a_batch(file: LogFile, position: int, end: int, next_offset: int) -> bool:
    """Whether a whole batch with later offsets begins behind `position`, at most 4 MB behind."""
    data = file.read(position, min(end - position, LOOKED_AT_BYTES_MAX))
    magic = bytes([MAGIC])
    at = data.find(magic, _MAGIC_AT + 1)
    while at >= 0:
        start = at - _MAGIC_AT
        if start + HEADER_BYTES > len(data):
            return False
        try:
            header = decode_header(data, start)
            if 0 <= header.base_offset - next_offset <= INT_MAX:
                check_crc(data, start, header)
                return True
        except CorruptMessage:
            pass
        at = data.find(magic, at + 1)
    return False
