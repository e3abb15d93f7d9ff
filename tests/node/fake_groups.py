"""A group coordinator without replicas, for the handlers of offset requests."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.coordinator.sharding import shard_for
from oncelog.node.clock import SystemClock
from oncelog.storage.partition_log import Origin
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.wire.errors import KafkaError
from oncelog.wire.record_batch import decode_header, restamp
from oncelog.wire.records import decode_batch

from ..log_batches import marker
from .fake_broker import FakeBroker
from .leading_broker import FakeVerifier

OFFSETS_TOPIC = "__consumer_offsets"


class FakeShard:
    """A shard (a partition of __consumer_offsets) with the parts that offset handlers use."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.offsets = OffsetTable()
        self.refusal: KafkaError | None = None
        self.is_known = True
        self.subscribed: frozenset[str] = frozenset()
        self.checks: list[tuple[Any, ...]] = []

    def check_offset_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int,
        *, is_transactional: bool, api_version: int, partitions: object,
    ) -> None:  # fmt: skip
        self.checks.append(
            (group_id, member_id, group_instance_id, generation, is_transactional, api_version)
        )
        self._refuse()

    def check_offset_fetch(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> bool:
        self._refuse()
        return self.is_known

    def check_offset_delete(self, group_id: str) -> frozenset[str]:
        self._refuse()
        return self.subscribed

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


class FakeGroups:
    """A coordinator with one shard. A lookup raises `failure`, an append `append_failure`."""

    def __init__(self, shard: FakeShard) -> None:
        self.shard = shard
        self.failure: KafkaError | None = None
        self.append_failure: KafkaError | None = None
        self.settled = 0
        self.end = 0
        self.batches: list[bytes] = []
        self.producer_state = ProducerStateTable()
        self.clock = SystemClock()

    def shard_for(self, group_id: str) -> FakeShard:
        if self.failure is not None:
            raise self.failure
        return self.shard

    async def until_settled(self, shard: FakeShard) -> None:
        self.settled += 1

    async def append(self, shard: FakeShard, batch: bytes, *, guard: int | None = None) -> int:
        assert shard is self.shard
        header = decode_header(batch)
        if header.producer_id >= 0:
            self.producer_state.check(header, origin=Origin.COORDINATOR, guard=guard)
        base = self.end
        await asyncio.sleep(0)
        if self.append_failure is not None:
            raise self.append_failure
        self.take(batch)
        return base

    def check_serving(self, shard: FakeShard) -> None:
        assert shard is self.shard

    def append_now(self, shard: FakeShard, batch: bytes) -> "tuple[int, asyncio.Future[int]]":
        return self.end, asyncio.ensure_future(self.append(shard, batch))

    def append_then(
        self, shard: FakeShard, batch: bytes, replayed: Callable[[Exception | None], object]
    ) -> None:
        assert shard is self.shard
        if self.append_failure is None:
            self.take(batch)
        asyncio.get_running_loop().call_soon(replayed, self.append_failure)

    def take(self, batch: bytes) -> None:
        stamped = memoryview(bytearray(batch))
        restamp(stamped, 0, self.end, 0)
        header = decode_header(stamped)
        if not header.is_control:
            self.producer_state.append(header, self.end, 0)
        self.end = header.next_offset
        self.batches.append(bytes(stamped))
        self.shard.offsets.replay(header, decode_batch(stamped))

    def mark(self, producer_id: int, epoch: int, *, commits: bool = True) -> None:
        """Write a producer's transaction marker to the shard."""
        offset = self.end
        self.take(marker(producer_id, commits, producer_epoch=epoch))
        self.producer_state.append_marker(
            producer_id, epoch, 0, is_aborted=not commits, offset=offset, timestamp=0, now_ms=0
        )


class GroupBroker(FakeBroker):
    """A broker that coordinates all groups, with topics `t` (3 partitions) and `u` (1)."""

    def __init__(self, **settings: str) -> None:
        super().__init__(3, **settings)
        self.ids = {"t": self.create("t", 3), "u": self.create("u", 1)}
        self.shard = FakeShard(shard_for("g", 8))
        self.groups = FakeGroups(self.shard)
        self.verifier = FakeVerifier()
        self.services.groups = self.groups  # type: ignore[assignment]
        self.services.verifier = self.verifier  # type: ignore[assignment]
        self.partition = SimpleNamespace(
            leading=lambda: None,
            log=SimpleNamespace(producer_state=self.groups.producer_state),
            transactional_ids={},
        )
        self.services.replicas = SimpleNamespace(  # type: ignore[assignment]
            get=lambda topic, index: (
                self.partition if (topic, index) == (OFFSETS_TOPIC, self.shard.index) else None
            )
        )
