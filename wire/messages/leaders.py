"""The tagged fields of Produce and Fetch that name the current leaders (KIP-951).

With these fields clients need no Metadata request after NOT_LEADER_OR_FOLLOWER.
"""

import struct
from collections.abc import Sequence

from ..primitives import Reader, encode_string, encode_unsigned_varint

NO_LEADER = (-1, -1)  # the default, with which the tagged field is omitted
NodeEndpoint = tuple[int, str, int, str | None]  # node id, host, port, rack
_int32 = struct.Struct(">i")
_leader = struct.Struct(">iib")


def encode_leader(leader: tuple[int, int]) -> bytes:
    return _leader.pack(*leader, 0)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the NodeEndpoints of KIP-951, which are tag 0 of Produce and Fetch."""
    chunks = [encode_unsigned_varint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        chunks += (
            _int32.pack(node_id),
            encode_string(host, True),
            _int32.pack(port),
            encode_string(rack, True),
            b"\0",
        )
    return b"".join(chunks)


def decode_endpoints(data: memoryview) -> list[NodeEndpoint]:
    """Decode NodeEndpoints of `encode_endpoints`."""
    reader = Reader(data)

    def one() -> NodeEndpoint:
        endpoint = (
            reader.int32(),
            reader.string(True),
            reader.int32(),
            reader.nullable_string(True),
        )
        reader.tags()
        return endpoint

    return reader.array(True, 11, one)


def decode_leader(data: memoryview) -> tuple[int, int]:
    """Decode a LeaderIdAndEpoch of KIP-951."""
    reader = Reader(data)
    leader = (reader.int32(), reader.int32())
    reader.tags()
    return leader
