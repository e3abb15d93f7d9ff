"""Many transactional ids, fast: InitProducerId requests in pipelines of many connections.

A broker serves one request of a connection at a time, so it is the number of connections that lets
the coordinator put many decisions into one group commit.
"""

import selectors
import struct
from collections import deque

from oncelog.coordinator.sharding import shard_for

from .connection import INIT_PRODUCER_ID, Address, Connection

VERSION = 0
CONNECTIONS_PER_SHARD = 16
PIPELINED = 32
RETRIABLE = {14, 15, 16, 51}  # loading, not available, not coordinator, concurrent


def ids_of_shards(shards: int, per_shard: int, prefix: str) -> list[list[str]]:
    """The same number of names for each shard of the coordinator."""
    found: list[list[str]] = [[] for _ in range(shards)]
    number = 0
    while any(len(names) < per_shard for names in found):
        name = f"{prefix}-{number:08d}"
        names = found[shard_for(name, shards)]
        if len(names) < per_shard:
            names.append(name)
        number += 1
    return found


def initialize(coordinators: list[Address], ids: list[list[str]]) -> int:
    """InitProducerId for every id at the coordinator of its shard; how many were tried again."""
    selector = selectors.DefaultSelector()
    lines = [
        _Line(address, deque(names[i::CONNECTIONS_PER_SHARD]))
        for address, names in zip(coordinators, ids, strict=True)
        for i in range(min(CONNECTIONS_PER_SHARD, len(names)))
    ]
    try:
        for line in lines:
            selector.register(line.connection.socket, selectors.EVENT_READ, line)
            line.fill()
        open_lines = len(lines)
        while open_lines:
            ready = selector.select(60)
            if not ready:
                raise TimeoutError("no coordinator has answered for 60 s")
            for key, _ in ready:
                if key.data.take():
                    selector.unregister(key.fileobj)
                    open_lines -= 1
    finally:
        for line in lines:
            line.connection.close()
        selector.close()
    return sum(line.retried for line in lines)


class _Line:
    """One connection and the ids that it has still to send."""

    def __init__(self, address: Address, names: deque[str]) -> None:
        self.connection = Connection(address)
        self.retried = 0
        self._names, self._asked = names, deque[str]()

    def fill(self) -> None:
        frames = bytearray()
        while self._names and len(self._asked) < PIPELINED:
            name = self._names.popleft()
            self._asked.append(name)
            text = name.encode()
            body = struct.pack(">h", len(text)) + text + struct.pack(">i", 60_000)
            frames += self.connection.frame(INIT_PRODUCER_ID, VERSION, body)
        if frames:
            self.connection.socket.sendall(frames)

    def take(self) -> bool:
        """Answers have come; whether none is left to come."""
        for answer in self.connection.receive_some():
            # correlation id, throttle time, error code
            (error,) = struct.unpack_from(">h", answer, 8)
            name = self._asked.popleft()
            if error in RETRIABLE:
                self._names.append(name)
                self.retried += 1
            elif error:
                raise RuntimeError(f"InitProducerId of {name} was refused with error {error}")
        if len(self._asked) <= PIPELINED // 2:
            self.fill()
        return not self._asked
