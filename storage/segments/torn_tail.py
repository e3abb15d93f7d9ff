"""The unreadable end of a log, which is an incomplete last write or damage.

The last write of a killed process may be incomplete. The file then ends within that batch, its
header is readable, and no batches follow. But a record's value may contain batches (a copy of a
segment, or malicious records). Therefore batches within that last batch count only if they follow
one another to the very end of the file. Elsewhere any whole batch with later offsets shows that the
unreadable part was once whole, and is damaged.
"""

from ...wire.errors import CorruptMessage
from ...wire.record_batch import HEADER_BYTES, MAGIC, BatchHeader, check_crc, decode_header
from ..topic_configs import INT_MAX
from .log_file import LogFile

LOOKED_AT_BYTES_MAX = 4 << 20
CANDIDATES_MAX = 100_000
CRC_BYTES_MAX = 16 << 20
_BASE_OFFSET_BYTES = 8
_MAGIC_AT = 16


def is_followed_by_a_batch(file: LogFile, position: int, end: int, next_offset: int) -> bool:
    """Return whether batches with later offsets begin within 4 MB after `position`."""
    return _Tail(file, position, end, next_offset).has_batches()


class _Tail:
    """The bytes of a file from the first unreadable byte to its end."""

    def __init__(self, file: LogFile, position: int, end: int, next_offset: int) -> None:
        self._file, self._position, self._end, self._next_offset = file, position, end, next_offset
        self._data = file.read(position, min(end - position, LOOKED_AT_BYTES_MAX))
        self._crc_bytes_left = CRC_BYTES_MAX
        self._walked = set[int]()  # positions from which batches do not reach the end

    def has_batches(self) -> bool:
        """Return whether whole batches follow the unreadable first batch."""
        first = self._header_at(self._position, self._next_offset)
        looks_torn = first is not None and self._position + first.size_bytes > self._end
        magic, at = bytes([MAGIC]), _MAGIC_AT
        for _ in range(CANDIDATES_MAX):
            at = self._data.find(magic, at + 1)
            if at < 0:
                break
            start = self._position + at - _MAGIC_AT
            header = self._header_at(start, self._next_offset)
            if header is None or (looks_torn and not self._reaches_the_end(start)):
                continue
            if self._is_sound(start, header):
                return True
        return False

    def _header_at(self, start: int, next_offset: int) -> BatchHeader | None:
        """Return the header at `start` if it is plausible and its offsets may follow, else None."""
        data, at = self._data, start - self._position
        if at + HEADER_BYTES > len(data):
            data, at = self._file.read(start, HEADER_BYTES), 0
            if len(data) < HEADER_BYTES:
                return None
        base_offset = int.from_bytes(data[at : at + _BASE_OFFSET_BYTES], signed=True)
        if not 0 <= base_offset - next_offset <= INT_MAX:
            return None
        try:
            return decode_header(data, at)
        except CorruptMessage:
            return None

    def _reaches_the_end(self, start: int) -> bool:
        at, next_offset, passed = start, self._next_offset, list[int]()
        while at < self._end and at not in self._walked:
            passed.append(at)
            header = self._header_at(at, next_offset)
            if header is None:
                break
            at, next_offset = at + header.size_bytes, header.next_offset
        if at != self._end:
            self._walked.update(passed)
        return at == self._end

    def _is_sound(self, start: int, header: BatchHeader) -> bool:
        """Return whether a batch is complete and has a valid checksum.

        The bytes to check are limited. Above the limit the result is False without a check.
        """
        if start + header.size_bytes > self._end or header.size_bytes > self._crc_bytes_left:
            return False
        self._crc_bytes_left -= header.size_bytes
        try:
            check_crc(self._file.read(start, header.size_bytes), 0, header)
        except CorruptMessage:
            return False
        return True
