"""A reader of all batches in a range of offsets, as they are in the log, for Spark's tasks.

A range is read to its end, or an error is raised, and is never read in part. The range ends with
the batch that contains or exceeds its last offset. In a compacted log the last offsets may be
missing. Then the range ends when the leader repeatedly returns no more batches, although its
readable offsets end past the range. An answer without records alone proves nothing. Kafka sends
an empty answer, without an error, when remote storage takes longer than remote.fetch.max.wait.ms
(KIP-1018). Kafka also does so while a leader knows its high watermark, but not yet its position in
the files. Therefore such a range is fetched again until the deadline. Records that retention
removes meanwhile are reported. Fetches run ahead in the client's thread while the caller uses
earlier batches, but never beyond the range.

Fetches use the topic's id, so the rows belong to the right topic. If a broker supports only names,
the id is checked before the first batches are returned, and after the last fetch. The process keeps
connections and metadata (kept_views.py), so later ranges cost only their fetches.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ...client.admin import Admin
from ...client.cluster_view import ClusterView
from ...client.failures import LogTruncated
from ...client.fetch.fetcher import Fetcher, wait_for
from ...client.fetch.offset_queries import EARLIEST, list_offsets
from ...client.fetch.state import FetchState, RawBatch
from ...client.settings import Settings, consumer_settings
from ...wire.errors import KafkaError, OffsetOutOfRange, RequestTimedOut
from .kept_views import kept_views
from .offsets import NO_TOPIC_ID, DataLost, OffsetRange, Report

ANSWER_MS = 500  # between two checks of the deadline
AGAIN_S = 0.05  # a new leader learns the high watermark within moments
EMPTY_ANSWERS = 2  # before the topic's cleanup.policy is asked for
EMPTY_MS = 2_000  # of empty answers only, before the rest of a compacted range counts as empty


class RangeReader:
    """An iterator over lists of batches. Close the reader, or use it as a context manager."""

    def __init__(
        self, client: Mapping[str, Any], wanted: OffsetRange, *, is_committed: bool, report: Report
    ) -> None:
        isolation = "read_committed" if is_committed else "read_uncommitted"
        self._settings: Settings = consumer_settings(
            client, {"isolation_level": isolation, "enable_auto_commit": False}
        )
        self._wanted, self._report, self._is_committed = wanted, report, is_committed
        self._state = FetchState(wanted.topic, wanted.partition, wanted.start)
        self._kept = kept_views()
        self._thread = self._kept.thread
        self._is_read = self._is_checked = self._is_closed = False
        self._thread.run(self._make())
        try:
            self._thread.run(self._open())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "RangeReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the running fetches, and return the connections."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.run(self._close())

    def __iter__(self) -> Iterator[list[RawBatch]]:
        while batches := self._thread.run(self._next()):
            yield batches

    async def _make(self) -> None:
        topic, topic_id = self._wanted.topic, self._wanted.topic_id
        ids = {} if topic_id == NO_TOPIC_ID else {topic: bytes.fromhex(topic_id)}
        self._view: ClusterView = await self._kept.take(self._settings)
        self._fetcher = Fetcher(self._view, self._settings, ids)

    async def _open(self) -> None:
        known = self._view.snapshot.partitions.get((self._wanted.topic, self._wanted.partition))
        if known is None or known.leader < 0 or self._other_id():
            await self._check_identity()
        self._ask()

    async def _check_identity(self) -> None:
        """Raise DataLost when the topic was deleted and created again."""
        await self._view.retrying(
            lambda: self._view.refresh([self._wanted.topic]),
            timeout_ms=self._settings.default_api_timeout_ms,
        )
        self._is_checked = True
        self._check_known_id()

    def _check_known_id(self) -> None:
        if now := self._other_id():
            topic, topic_id = self._wanted.topic, self._wanted.topic_id
            raise DataLost(
                f"topic {topic} was deleted and made anew while it was read (its id was "
                f"{topic_id}, now it is {now}): begin with another checkpointLocation"
            )

    def _other_id(self) -> str:
        """Return the topic's latest known id if it differs from the range's topic id, else ""."""
        topic, topic_id = self._wanted.topic, self._wanted.topic_id
        now = self._view.snapshot.topic_ids.get(topic, b"").hex()
        return now if topic_id != NO_TOPIC_ID and now.strip("0") and now != topic_id else ""

    async def _close(self) -> None:
        is_sound = self._is_read and self._fetcher.is_idle
        await self._fetcher.close()
        await self._kept.give_back(self._settings, self._view, is_sound=is_sound)

    def _ask(self) -> None:
        if self._state.fetch_offset < self._wanted.end:
            self._fetcher.start([self._state])

    async def _next(self) -> list[RawBatch]:
        """Return the batches of the next answer, or [] at the end of the range."""
        state, end, fetcher = self._state, self._wanted.end, self._fetcher
        begun_ms = _now_ms()
        empty_answers, policy = 0, ""
        while state.position < end:
            found = self._take()
            if found:
                self._ask()
                if fetcher.has_gone_by_name and not self._is_checked:
                    await self._check_identity()
                return found
            self._check_known_id()
            if fetcher.problems:
                raise fetcher.problems.pop(0)
            if fetcher.truncated:
                _, offset, epoch_end = fetcher.truncated.pop()
                raise LogTruncated(
                    f"{state.topic}/{state.partition} was read up to offset {offset}, but its new "
                    f"leader has the same records only up to {epoch_end.end_offset} (-1: unknown). "
                    "After an unclean election some rows of this task are no longer in the log, so "
                    "it has to begin anew"
                )
            if fetcher.out_of_range:
                await self._jump()
            elif self._bound() >= end and not state.has_data:
                empty_answers += 1
                if empty_answers == EMPTY_ANSWERS:
                    policy = await self._cleanup_policy()
                if "compact" in policy.split(",") and _now_ms() - begun_ms > EMPTY_MS:
                    break
                await asyncio.sleep(AGAIN_S)
            if _now_ms() - begun_ms > self._settings.default_api_timeout_ms:
                raise RequestTimedOut(self._what_is_missing(empty_answers, policy))
            state.high_watermark = state.last_stable_offset = -1
            fetcher.arrived.clear()
            self._ask()
            await wait_for(fetcher.arrived, ANSWER_MS)
        if fetcher.has_gone_by_name:  # the topic may have been replaced on the way
            await self._check_identity()
        self._is_read = True
        return []

    def _take(self) -> list[RawBatch]:
        found: list[RawBatch] = []
        while self._state.position < self._wanted.end:
            batch = self._state.take_raw()
            if batch is None:
                break
            found.append(batch)
        return found

    def _bound(self) -> int:
        """Return the end of the readable offsets in the last answer, or -1 if there is none."""
        state = self._state
        return state.last_stable_offset if self._is_committed else state.high_watermark

    async def _cleanup_policy(self) -> str:
        """Return the topic's cleanup.policy, or the reason why it is unknown."""
        try:
            configs = await Admin(self._view).describe_configs(self._wanted.topic)
        except KafkaError as problem:
            return f"not known ({problem})"
        return next((c.value or "" for c in configs if c.name == "cleanup.policy"), "not known")

    def _what_is_missing(self, empty_answers: int, policy: str) -> str:
        state, wanted = self._state, self._wanted
        said = (
            f"{state.topic}/{state.partition}: no broker gave what stands at offset "
            f"{state.position} for {self._settings.default_api_timeout_ms} ms; the range "
            f"goes to {wanted.end}, and readers are let to {self._bound()}"
        )
        if empty_answers < EMPTY_ANSWERS:
            return said
        return (
            f"{said}. {empty_answers} answers held no records and no error. Only a compacted topic "
            f"has holes, and its cleanup.policy is {policy}, so records are there and are not left "
            "out: the query stops, and reads them when it is started again. From remote storage "
            "they may be slow to come: raise remote.fetch.max.wait.ms of the brokers, or "
            "kafka.default.api.timeout.ms here. If the topic was compacted before, write one more "
            "record to the partition: it shows where the hole ends"
        )

    async def _jump(self) -> None:
        """Skip to the start of the log after OFFSET_OUT_OF_RANGE, and report the removed offsets.

        If the offset was not removed, a new leader may not know it yet, and the caller fetches it
        again.
        """
        self._fetcher.out_of_range.clear()
        await self._check_identity()
        state, wanted = self._state, self._wanted
        key = (wanted.topic, wanted.partition)
        begins = await list_offsets(  # the fetch's answer does not say
            self._view,
            {key: EARLIEST},
            read_committed=False,
            timeout_ms=self._settings.default_api_timeout_ms,
        )
        first = begins[key]
        if first <= state.position:
            await asyncio.sleep(AGAIN_S)
            return
        try:
            self._report(
                f"{wanted.topic}/{wanted.partition}: offsets {state.position} to "
                f"{min(first, wanted.end) - 1} were removed while they were to be read, the log "
                f"begins at {first}; raise retention.ms or retention.bytes"
            )
        except DataLost as lost:
            raise lost from OffsetOutOfRange(f"the log begins at {first}")
        state.seek(min(first, wanted.end))


def _now_ms() -> float:
    return time.monotonic() * 1000
