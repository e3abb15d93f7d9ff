"""The contents of a load's records. The file does no I/O.

A record begins with eight bytes of value, by which the judge recognises the record. The data of its
workload follows. The bank adds the number of the transfer and the amount, and the others add
filler, so sizes differ.
"""

import struct

_VALUE = struct.Struct(">q")
_LEG = struct.Struct(">qqq")
FILLER = bytes(4_096)


def plain(value: int, filler_bytes: int) -> bytes:
    """Return the bytes of a record that has only a value and filler."""
    return _VALUE.pack(value) + FILLER[:filler_bytes]


def leg(value: int, transfer: int, amount: int) -> bytes:
    """Return the bytes of one side of a transfer.

    `amount` is received (above 0) or given (below 0).
    """
    return _LEG.pack(value, transfer, amount)


def value_of(content: bytes | None) -> int:
    """Return the value inside a record's bytes, or -1 for a record that no load has written."""
    return -1 if content is None or len(content) < _VALUE.size else _VALUE.unpack_from(content)[0]


def leg_of(content: bytes | None) -> tuple[int, int] | None:
    """Return (transfer, amount) of a record of the bank, or None for a record without them."""
    if content is None or len(content) != _LEG.size:
        return None
    return _LEG.unpack(content)[1:]
