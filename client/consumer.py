"""A reader of assigned partitions (no group): positions are the caller's own.

async with Consumer(view, read_committed=True) as consumer:
    consumer.assign({("orders", 0): 0})
    for topic, partition, record in await consumer.poll(timeout_ms=500):
        ...
"""

import asyncio
import time
from collections.abc import Mapping

from ..wire.errors import (
    ErrorCode,
    KafkaError,
    OffsetOutOfRange,
    RequestTimedOut,
    error_for,
)
from ..wire.messages import fetch
from ..wire.records import Record
from .cluster_view import ClusterView
from .fetch_state import FetchState

FETCH = 1
FETCH_BY_NAME_NEWEST = 12
RETRY_PAUSE_MS = 50


class Consumer:
    """See the top of the file. The view is the caller's to close."""

    def __init__(
        self,
        view: ClusterView,
        *,
        read_committed: bool = False,
        max_bytes: int = 8 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
    ) -> None:
        self._view, self._read_committed = view, read_committed
        self._max_bytes, self._partition_max_bytes = max_bytes, partition_max_bytes
        self._states: dict[tuple[str, int], FetchState] = {}

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(self, *_: object) -> None:
        self._states.clear()

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Read these partitions from these offsets on; replaces what was assigned."""
        self._states = {key: FetchState(offset) for key, offset in positions.items()}

    def unassign(self, topic: str, partition: int) -> None:
        """Read a partition no longer."""
        self._states.pop((topic, partition), None)

    def position(self, topic: str, partition: int) -> int:
        """The offset that will be read next."""
        return self._states[(topic, partition)].position

    async def poll(self, timeout_ms: int = 500) -> list[tuple[str, int, Record]]:
        """Records that came within the time, in order within each partition; may be empty.

        Retriable problems (a leader that moves) are waited out; OffsetOutOfRange is raised.
        """
        deadline_ms = _now_ms() + timeout_ms
        while True:
            left_ms = max(1, deadline_ms - _now_ms())
            by_leader = await self._by_leader()
            answers = await asyncio.gather(
                *(self._fetch(leader, keys, left_ms) for leader, keys in by_leader.items())
            )
            found = [item for answer in answers for item in answer]
            if found or _now_ms() >= deadline_ms:
                return found
            if not by_leader:
                await asyncio.sleep(min(left_ms, RETRY_PAUSE_MS) / 1000)

    async def _by_leader(self) -> dict[int, list[tuple[str, int]]]:
        unknown = {k[0] for k in self._states if not self._knows_leader(k)}
        if unknown:
            try:
                await self._view.refresh(unknown)
            except KafkaError as problem:
                if not problem.retriable:
                    raise
        groups: dict[int, list[tuple[str, int]]] = {}
        for key in self._states:
            if self._knows_leader(key):
                groups.setdefault(self._view.snapshot.partitions[key].leader, []).append(key)
        return groups

    def _knows_leader(self, key: tuple[str, int]) -> bool:
        known = self._view.snapshot.partitions.get(key)
        return known is not None and known.leader >= 0

    async def _fetch(
        self, leader: int, keys: list[tuple[str, int]], wait_ms: int
    ) -> list[tuple[str, int, Record]]:
        topics: dict[str, fetch.FetchTopic] = {}
        for name, partition in keys:
            topic = topics.setdefault(name, fetch.FetchTopic(name, None, []))
            position = self._states[(name, partition)].position
            topic.partitions.append(
                fetch.FetchPartition(partition, position, self._partition_max_bytes)
            )
        request = fetch.FetchRequest(
            min(wait_ms, 500),
            1,
            list(topics.values()),
            max_bytes=self._max_bytes,
            isolation_level=int(self._read_committed),
        )
        try:
            connection = await self._view.broker(leader)
            version = min(connection.version_for(FETCH), FETCH_BY_NAME_NEWEST)
            body = fetch.encode_request(request, version)
            answer = await connection.send(FETCH, version, body)
            response = fetch.decode_response(answer, version)
            if response.error_code:
                raise error_for(response.error_code)
        except KafkaError as problem:
            await self._recover(problem, {name for name, _ in keys})
            return []
        return await self._take(response)

    async def _take(self, response: fetch.FetchResponse) -> list[tuple[str, int, Record]]:
        found: list[tuple[str, int, Record]] = []
        stale: set[str] = set()
        for topic in response.topics:
            assert topic.name is not None
            for p in topic.partitions:
                state = self._states.get((topic.name, p.index))
                if state is None:
                    continue
                if p.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise OffsetOutOfRange(
                        f"{topic.name}/{p.index} has no offset {state.position}; "
                        f"it begins at {p.log_start_offset}"
                    )
                if p.error_code:
                    problem = error_for(p.error_code)
                    if not problem.retriable:
                        raise problem
                    stale.add(topic.name)
                    continue
                state.high_watermark = p.high_watermark
                state.last_stable_offset = p.last_stable_offset
                records = state.take(
                    p.records, p.aborted_transactions, read_committed=self._read_committed
                )
                found += [(topic.name, p.index, record) for record in records]
        if stale:
            await self._recover(RequestTimedOut("stale"), stale)
        return found

    async def _recover(self, problem: KafkaError, topics: set[str]) -> None:
        """After a retriable problem: wait a little, then learn who leads now."""
        if not problem.retriable:
            raise problem
        await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        try:
            await self._view.refresh(topics)
        except KafkaError as again:
            if not again.retriable:
                raise


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
