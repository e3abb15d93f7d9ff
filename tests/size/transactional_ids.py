"""Create many transactional ids fast, with pipelined InitProducerId on many connections.

A broker handles one request of a connection at a time. The coordinator can write the records for
requests of different connections with one group commit.
"""

import itertools
import selectors
import struct
import time
from collections import deque
from collections.abc import Iterable

from oncelog import Cluster
from oncelog.coordinator.sharding import shard_for
from oncelog.wire.errors import KafkaError

from .connection import INIT_PRODUCER_ID, Connection

VERSION = 0
CONNECTIONS_PER_SHARD = 16
PIPELINED = 32
PROGRESS_TIMEOUT_S = 60.0
RETRIABLE = {14, 15, 16, 51}  # loading, not available, not coordinator, concurrent


def ids_of_shards(shards: int, per_shard: int, prefix: str) -> list[list[str]]:
    """Return for each shard of the transaction coordinator the same number of ids."""
    found: list[list[str]] = [[] for _ in range(shards)]
    number = 0
    while any(len(names) < per_shard for names in found):
        name = f"{prefix}-{number:08d}"
        names = found[shard_for(name, shards)]
        if len(names) < per_shard:
            names.append(name)
        number += 1
    return found


def initialize(cluster: Cluster, ids: list[list[str]]) -> dict[str, tuple[int, int]]:
    """Send InitProducerId for every id, and return (producer id, epoch) by id.

    An id without a successful answer is sent again to the coordinator of that time.
    """
    found: dict[str, tuple[int, int]] = {}
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while left := [names for names in ids if names]:
        before = len(found)
        try:
            ids = _round(cluster, left, found)
        except (KafkaError, OSError):  # there is no coordinator, or not yet
            time.sleep(0.1)
        if len(found) > before:
            deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        elif time.monotonic() > deadline:
            raise TimeoutError(f"no id was taken for {PROGRESS_TIMEOUT_S:.0f} s")
    return found


def _round(
    cluster: Cluster, ids: list[list[str]], found: dict[str, tuple[int, int]]
) -> list[list[str]]:
    """Send InitProducerId for all ids of each shard, and return those without a producer id."""
    selector = selectors.DefaultSelector()
    lines: list[list[_Line]] = []
    try:
        for names in ids:
            entry = cluster.file.entry(cluster.coordinator("txn", names[0]))
            lines.append([])
            for i in range(min(CONNECTIONS_PER_SHARD, len(names))):
                connection = Connection((entry.host, entry.port))
                line = _Line(connection, deque(names[i::CONNECTIONS_PER_SHARD]), found)
                selector.register(connection.socket, selectors.EVENT_READ, line)
                lines[-1].append(line)
                line.fill()
        while selector.get_map():
            ready = selector.select(PROGRESS_TIMEOUT_S)
            if not ready:
                break
            for key, _ in ready:
                if key.data.take():
                    selector.unregister(key.fileobj)
    finally:
        for line in itertools.chain.from_iterable(lines):
            line.connection.close()
        selector.close()
    return [list(itertools.chain.from_iterable(line.left for line in some)) for some in lines]


class _Line:
    """One connection, and the transactional ids that it still has to initialize."""

    def __init__(
        self, connection: Connection, names: deque[str], found: dict[str, tuple[int, int]]
    ) -> None:
        self.connection = connection
        self._names, self._asked, self._found = names, deque[str](), found
        self._refused: list[str] = []

    @property
    def left(self) -> Iterable[str]:
        """Return the ids that have no successful answer yet."""
        return itertools.chain(self._asked, self._names, self._refused)

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
        """Read received answers, and return whether the connection has finished or is lost."""
        try:
            for answer in self.connection.receive_some():
                _, _, error, producer_id, epoch = struct.unpack(">iihqh", answer)
                name = self._asked.popleft()
                if error in RETRIABLE:
                    self._refused.append(name)
                elif error:
                    raise RuntimeError(f"InitProducerId of {name} was refused: error {error}")
                else:
                    self._found[name] = producer_id, epoch
            if len(self._asked) <= PIPELINED // 2:
                self.fill()
        except OSError:
            return True
        return not self._asked
