"""Large resources of a cluster, each created once and used repeatedly.

After any death of nodes `use` must find the resource as it was created. Otherwise it raises an
exception. Sizes depend on a `Scale`, so that all resources can be tried at a small size.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.record_batch import decode_header, rewrite_producer
from oncelog.wire.records import Record, encode_batch

from .connection import FETCH, METADATA, PRODUCE, Connection
from .journal import SHARDS
from .stage import Skipped, Stage, produce_body, require_appended
from .transactional_ids import ids_of_shards, initialize

COMMANDS = 10
SAMPLE = 500
PIPELINED = 64


class Missing(Exception):
    """Raised if a resource is not as it was created."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A factor for the sizes of all resources. 1 is the full size."""

    factor: float = 1.0

    def __call__(self, full: int, least: int = 1) -> int:
        return max(least, int(full * self.factor))


@dataclass(slots=True)
class Burden:
    """A large resource, such as many partitions. `known` has what `make` stored for `use`."""

    scale: Scale
    known: dict[Any, Any] = field(default_factory=dict)

    def make(self, stage: Stage) -> str:
        raise NotImplementedError

    def use(self, stage: Stage) -> str:
        raise NotImplementedError


class Partitions(Burden):
    """10,000 partitions with replication factor 3, created by 10 requests."""

    def make(self, stage: Stage) -> str:
        each = self.scale(10_000, COMMANDS) // COMMANDS
        for number in range(COMMANDS):
            stage.create(f"wide-{number}", each)
        return f"{COMMANDS * each:,} partitions by {COMMANDS} commands"

    def use(self, stage: Stage) -> str:
        batch = encode_batch([Record(0, 0, None, b"x" * 100)])
        for number in range(COMMANDS):
            stage.produce_everywhere(f"wide-{number}", batch, pipelined=PIPELINED)
        return "a batch to each partition"


class TransactionalIds(Burden):
    """100,000 transactional ids with producer ids and epochs."""

    def make(self, stage: Stage) -> str:
        ids = ids_of_shards(SHARDS, self.scale(100_000, SHARDS) // SHARDS, "soak")
        self.known = initialize(stage.cluster, ids)
        return f"{len(self.known):,} transactional ids"

    def use(self, stage: Stage) -> str:
        per_shard = max(1, min(SAMPLE, len(self.known)) // SHARDS)
        ids = ids_of_shards(SHARDS, per_shard, "soak")
        for name, (producer_id, epoch) in initialize(stage.cluster, ids).items():
            if self.known[name][0] != producer_id or self.known[name][1] >= epoch:
                raise Missing(f"{name} was {self.known[name]}, now {(producer_id, epoch)}")
            self.known[name] = producer_id, epoch
        return f"{per_shard * SHARDS} of them begin again"


class Producers(Burden):
    """A partition in which 100,000 producer ids have written."""

    def make(self, stage: Stage) -> str:
        stage.create("producers", 1)
        count = self.scale(100_000, 10)
        appended = self._append(stage, dict.fromkeys(range(count), 0))
        self.known = {i: (0, offset) for i, offset in appended}
        return f"{len(self.known):,} producer ids in one partition"

    def use(self, stage: Stage) -> str:
        some = dict(list(self.known.items())[:: max(1, len(self.known) // SAMPLE)])
        repeated = self._append(stage, {i: sequence for i, (sequence, _) in some.items()})
        for i, offset in repeated:
            if offset != some[i][1]:
                raise Missing(f"producer {i} was at {some[i]}; its repeated batch went to {offset}")
        following = self._append(stage, {i: sequence + 1 for i, (sequence, _) in some.items()})
        self.known |= {i: (some[i][0] + 1, offset) for i, offset in following}
        return f"{len(some)} of them repeat a batch and go on"

    def _append(self, stage: Stage, sequences: dict[int, int]) -> list[tuple[int, int]]:
        """Append one batch of each producer, and return (producer, offset) of each batch."""
        (leader,) = stage.leaders("producers")
        connection = Connection(stage.address(leader))
        row = Record(0, 0, None, b"x")
        batch = bytearray(encode_batch([row], producer_id=0, producer_epoch=0, base_sequence=0))
        offsets: list[tuple[int, int]] = []
        producers = list(sequences.items())
        for start in range(0, len(producers), PIPELINED):
            some = producers[start : start + PIPELINED]
            for i, sequence in some:
                rewrite_producer(batch, 1_000_000 + i, 0, sequence)
                connection.send(PRODUCE, 9, produce_body("producers", 0, bytes(batch)))
            offsets += [(i, require_appended(connection, 0)) for i, _ in some]
        connection.close()
        return offsets


class Connections(Burden):
    """1,000 open connections, spread over all nodes."""

    def make(self, stage: Stage) -> str:
        nodes = stage.cluster.node_ids
        for i in range(self.scale(1_000, len(nodes))):
            self.known[i] = Connection(stage.address(nodes[i % len(nodes)]))
        self._ask()
        return f"{len(self.known):,} connections"

    def use(self, stage: Stage) -> str:
        try:
            self._ask()
            return "all of them ask for the metadata"
        except OSError:
            self.close()
            return f"after the death of their nodes {self.make(stage)}"

    def close(self) -> None:
        for connection in self.known.values():
            connection.close()

    def _ask(self) -> None:
        body = struct.pack(">i?", 0, False)  # of no topic
        for connection in self.known.values():
            connection.send(METADATA, 4, body)
        for connection in self.known.values():
            connection.receive(METADATA, 4)


class Large(Burden):
    """A partition of 20 GB in small batches, with replication factor 1."""

    def make(self, stage: Stage) -> str:
        total_bytes = self.scale(20_000_000_000)
        stage.require_room(total_bytes)
        stage.create("large", 1, 1, min_insync_replicas=1)
        rows = [Record(i, 0, None, b"%015d" % i + b"x" * 1_009) for i in range(16)]
        batch = encode_batch(rows)
        count = max(1, total_bytes // len(batch))
        self._append(stage, batch, count)
        self.known = {"end": count * len(rows), "batch": batch}
        return f"{count * len(batch) / 1e9:.2f} GB in batches of {len(batch):,} bytes"

    def use(self, stage: Stage) -> str:
        if not self.known:
            raise Skipped("it was not made")
        end = self.known["end"]
        for offset in (0, end // 2, end - 1):
            if not self._covers(stage, offset):
                raise Missing(f"the record at {offset} of {end} cannot be read")
        first = self._append(stage, self.known["batch"], PIPELINED)
        if first != end:
            raise Missing(f"the log ended at {end}, and goes on at {first}")
        self.known["end"] = end + PIPELINED * 16
        return f"read at three places, appended at {end:,}"

    def _append(self, stage: Stage, batch: bytes, count: int) -> int:
        """Append the batch `count` times with pipelined requests, and return the first offset."""
        (leader,) = stage.leaders("large")
        connection = Connection(stage.address(leader))
        body = produce_body("large", 0, batch)
        first: int | None = None
        for sent in range(count + PIPELINED):
            if sent < count:
                connection.send(PRODUCE, 9, body)
            if sent >= PIPELINED:
                offset = require_appended(connection, 0)
                first = offset if first is None else first
        connection.close()
        assert first is not None
        return first

    def _covers(self, stage: Stage, offset: int) -> bool:
        (leader,) = stage.leaders("large")
        connection = Connection(stage.address(leader))
        topics = [FetchTopic("large", None, [FetchPartition(0, offset, 1)])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
        answer = connection.ask(FETCH, 12, request)
        connection.close()
        (partition,) = answer.topics[0].partitions
        if partition.error_code or not partition.records:
            return False
        header = decode_header(partition.records)
        return header.base_offset <= offset < header.next_offset
