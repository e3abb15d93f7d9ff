"""A consumer of our client library that records every poll.

The consumer reads assigned partitions, or as a member of a group. `rewind` seeks back to the start
of a failed transaction's polls. The session stays the same, and the next poll has to begin at that
start.
"""

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....client.consumer import Consumer, ConsumerRecord
from ....client.view_source import Source
from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ...judge.history.outcomes import outcome_of_group_commit
from ...judge.history.recorder import Begun, Recorder
from ...judge.history.rows import Handle
from .payloads import value_of
from .recorded_tenures import RecordedTenures
from .settings import LoadSettings


class Polled(NamedTuple):
    """The records of one poll, with the number of the recorded call and the time of its return."""

    call: int
    returned_ns: int
    records: list[ConsumerRecord]


class RecordedConsumer:
    """A consumer that records its polls and commits in the history.

    One object is one client in the history. A consumer and a producer with the same `process` are
    recorded as one client.
    """

    def __init__(
        self,
        source: Source,
        recorder: Recorder,
        process: int,
        settings: LoadSettings,
        *,
        group: str | None = None,
        instance: str | None = None,
        protocol: str = "classic",
    ) -> None:
        self.process, self._recorder = process, recorder
        self.session = 0
        self._begun_at: dict[TopicPartition, int] = {}
        self._assignments: dict[TopicPartition, Handle] = {}
        self._group = group
        self._owned: tuple[int, list[TopicPartition]] | None = None
        self._behind_max = settings.behind_max
        self._tenures: RecordedTenures | None = None
        options: dict[str, object] = {}
        if group is not None:
            options = {
                "group_id": group,
                "group_instance_id": instance,
                "group_protocol": protocol,
                "enable_auto_commit": False,
            }
            if protocol == "classic":
                options |= {
                    "partition_assignment_strategy": settings.assignor,
                    "session_timeout_ms": settings.session_timeout_ms,
                    "heartbeat_interval_ms": max(100, settings.session_timeout_ms // 10),
                }
            else:
                self._tenures = RecordedTenures(recorder, process, group)
        self._consumer = Consumer(
            source,
            isolation_level="read_committed",
            # without a group, a position that is gone is an error and not a reason to skip
            auto_offset_reset="none" if group is None else "earliest",
            request_timeout_ms=settings.request_timeout_ms,
            default_api_timeout_ms=settings.patience_ms,
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_wait_ms=settings.fetch_wait_ms,
            **options,
        )
        self.group_metadata, self.close = self._consumer.group_metadata, self._consumer.close
        if self._tenures is not None:
            self._consumer.watch_heartbeats(self._tenures)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics as a member of the group."""
        self._consumer.subscribe(topics, on_assigned=self._assigned, on_revoked=self._revoked)

    async def assign_near_end(
        self, partitions: Iterable[TopicPartition], rng: random.Random
    ) -> None:
        """Assign these partitions, each from a random offset near its end, or raise KafkaError."""
        wanted = list(partitions)
        ends = await self._consumer.end_offsets(wanted)
        starts = await self._consumer.beginning_offsets(wanted)
        offsets = {
            key: max(starts[key], ends[key] - rng.randint(0, self._behind_max)) for key in wanted
        }
        self._revoked(list(self._assignments))
        self._consumer.assign(offsets)
        self._begin_session(offsets)

    def begin(self) -> None:
        """Let a later `rewind` return to the current positions."""
        self._begun_at.clear()

    async def poll(
        self, timeout_ms: int, records_max: int, transaction: Begun | None = None
    ) -> list[ConsumerRecord]:
        """Poll, record the returned records, and return them, or raise KafkaError."""
        polled = await self.fetch(timeout_ms, records_max, transaction)
        self.record(polled, transaction)
        return polled.records

    async def fetch(
        self, timeout_ms: int, records_max: int, transaction: Begun | None = None
    ) -> Polled:
        """Poll, and record only the call. The caller then passes the result to `record`."""
        call, row = self._recorder.poll_invoked(self.process, transaction)
        records = await self._consumer.poll(timeout_ms, records_max)
        returned_ns = self._recorder.poll_returned(row)
        if self._group is not None and self._tenures is None:
            self._note_ownership(self._group)
        for record in records:
            self._begun_at.setdefault((record.topic, record.partition), record.offset)
        return Polled(call, returned_ns, records)

    def record(self, polled: Polled, transaction: Begun | None) -> None:
        """Record the records that `fetch` returned."""
        for record in polled.records:
            self._recorder.polled(
                self.process,
                polled.call,
                f"{record.topic}/{record.partition}",
                record.offset,
                value_of(record.value),
                returned_ns=polled.returned_ns,
                transaction=transaction,
                session=self.session,
            )

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the last poll outside of transactions, or raise KafkaError."""
        assert self._group is not None
        generation, before = self.group_metadata().generation_id, self._consumer.commits_sent
        rows = [
            self._recorder.group_commit_invoked(
                self.process,
                self._group,
                generation if self._tenures is None else self._tenures.epoch_of(key),
                f"{key[0]}/{key[1]}",
                offset,
            )
            for key, offset in offsets.items()
        ]
        problem: KafkaError | None = None
        try:
            await self._consumer.commit(offsets)
        except KafkaError as caught:
            problem = caught
        attempts = self._consumer.commits_sent - before
        number = None if problem is None else problem.number
        outcome = outcome_of_group_commit(number, attempts)
        error = None if problem is None else type(problem).__name__
        for row in rows:
            self._recorder.group_commit_ended(row, outcome, attempts, error)
        if problem is not None:
            raise problem

    def _note_ownership(self, group: str) -> None:
        """Record the partitions that the member owns, if they or the generation have changed."""
        member = self.group_metadata()
        owned = member.generation_id, sorted(self._consumer.assignment)
        if owned != self._owned:
            self._owned = owned
            owner, now_ns = member.group_instance_id or member.member_id, self._recorder.now_ns()
            for topic, partition in owned[1]:
                row = self.process, group, owned[0], f"{topic}/{partition}", owner, now_ns
                self._recorder.add("ownerships", *row)

    def rewind(self) -> None:
        """Seek back to the positions at the last `begin`, in partitions that are still assigned."""
        mine = set(self._consumer.assignment)
        for key, offset in self._begun_at.items():
            if key in mine:
                self._consumer.seek(*key, offset)
        self._begun_at.clear()

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        if self._tenures is not None:
            self._tenures.begin(partitions)
        self._begin_session(dict.fromkeys(partitions, -1))

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        if self._tenures is not None:
            self._tenures.end(partitions)
        for key in partitions:
            self._begun_at.pop(key, None)
            if (row := self._assignments.pop(key, None)) is not None:
                self._recorder.revoked(row)

    def _begin_session(self, offsets: dict[TopicPartition, int]) -> None:
        self.session += 1
        for key, offset in offsets.items():
            name = f"{key[0]}/{key[1]}"
            row = self._recorder.assigned(self.process, self.session, name, offset)
            self._assignments[key] = row
