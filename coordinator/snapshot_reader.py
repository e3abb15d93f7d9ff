"""A reader of a snapshot's msgpack, value by value, so that a large one can be read in slices.

`msgpack.unpackb` would create all objects of a snapshot in one step and block the event loop.
"""

from collections.abc import Callable
from typing import Any

import msgpack

_FEED_BYTES = 64 << 10


class SnapshotReader:
    """A reader of successive values. Malformed data raises ValueError or UnpackException."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._fed = 0
        self._unpacker = msgpack.Unpacker(use_list=False)

    def value(self) -> Any:
        """Read the next value completely. Arrays are tuples."""
        return self._next(self._unpacker.unpack)

    def array(self) -> int:
        """Read the length of an array. Its elements are read one by one."""
        return self._next(self._unpacker.read_array_header)

    def end(self) -> None:
        """Raise ValueError if more data follows."""
        if self._unpacker.tell() != len(self._data):
            raise ValueError("more bytes follow")

    def _next(self, read: Callable[[], Any]) -> Any:
        while True:
            try:
                return read()
            except msgpack.OutOfData:
                if self._fed == len(self._data):
                    raise
                self._unpacker.feed(self._data[self._fed : self._fed + _FEED_BYTES])
                self._fed = min(self._fed + _FEED_BYTES, len(self._data))
