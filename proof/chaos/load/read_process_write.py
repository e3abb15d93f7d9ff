"""The workload that writes one output for each input, and commits the offsets transactionally.

Members of one group read the records of `append`. A transaction takes the records of one poll,
writes one record for each to the partition of the same number (so the order can be judged), and
commits the offsets (KIP-447). After a transaction that did not commit, the consumer rewinds. Other
members read and commit without transactions.
"""

from functools import partial
from typing import Any

from ....client.group_metadata import GroupMetadata
from ....wire.identifiers import TopicPartition
from ...judge.history.recorder import Begun
from ...judge.history.schema import OpOutcome
from .incarnations import LoadContext, WorkloadClient, one_after_another, pause
from .payloads import plain
from .recorded_consumer import Polled, RecordedConsumer
from .settings import APPEND, OUTPUTS


async def read_commit(context: LoadContext) -> None:
    """Run members that read and commit without transactions, one after another until `stop()`."""
    await one_after_another(partial(_Reader, context), context)


class _Reader:
    """One incarnation of a member that reads the records of `append` and commits plain offsets.

    Check A6 requires that the last acknowledged commit is the group's final offset.
    """

    is_over = False

    def __init__(self, context: LoadContext) -> None:
        settings = self._settings = context.settings
        self._rng = context.rng
        self._consumer = RecordedConsumer(
            context.source,
            context.recorder,
            context.recorder.new_process(),
            settings,
            group=settings.readers,
            protocol=settings.protocol_of(settings.readers),
        )
        self.close = self._consumer.close

    async def open(self) -> None:
        self._consumer.subscribe([APPEND])

    async def work(self) -> None:
        """Poll once, and commit the offsets of the polled records."""
        settings = self._settings
        records = await self._consumer.poll(5 * settings.poll_ms, settings.job_records_max)
        await self._consumer.commit({(r.topic, r.partition): r.offset + 1 for r in records})
        await pause(settings.pause_ms, self._rng)


async def read_process_write(context: LoadContext, *, name: str) -> None:
    """Run members of the read-process-write job, one after another until `stop()`.

    `name` is the transactional id.
    """
    await one_after_another(partial(_Member, context, name), context)


class _Member(WorkloadClient):
    """A member of the job's group, which runs one transaction after another."""

    def _membership(self) -> dict[str, Any]:
        is_static = self._rng.random() < self._settings.static_share
        name = self._producer.transactional_id
        return {
            "group": self._settings.group,
            "instance": name if is_static else None,
            "protocol": self._settings.protocol_of(self._settings.group),
        }

    async def open(self) -> None:
        await super().open()
        self._consumer.subscribe([APPEND])

    async def work(self) -> None:
        """Poll, and process the records in one transaction, if there are any."""
        settings = self._settings
        self._consumer.begin()
        polled = await self._consumer.fetch(5 * settings.poll_ms, settings.job_records_max)
        if polled.records:
            await self._transact(polled)
        await pause(settings.pause_ms, self._rng)

    async def _transact(self, polled: Polled) -> None:
        membership = self._consumer.group_metadata()  # of the generation that these records came in
        transaction = await self._producer.begin()
        self._consumer.record(polled, transaction)
        await self._end_after(self._write_with_offsets(polled, transaction, membership))

    async def _write_with_offsets(
        self, polled: Polled, transaction: Begun, membership: GroupMetadata
    ) -> None:
        await self._write(polled)
        await self._producer.send_offsets(self._offsets(polled, transaction), membership)

    async def _write(self, polled: Polled) -> None:
        for record in polled.records:
            value = self._recorder.new_value()
            where = f"{record.topic}/{record.partition}"
            group = self._settings.group
            self._recorder.add("derivations", value, group, where, record.offset)
            content = plain(value, self._rng.randint(0, self._settings.filler_bytes_max))
            await self._producer.send(OUTPUTS, record.partition, value, content)

    def _offsets(self, polled: Polled, transaction: Begun) -> dict[TopicPartition, int]:
        """Return the offsets to commit, and record the range of inputs of each partition.

        A range is [first record, offset after the last record).
        """
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for record in polled.records:
            key = (record.topic, record.partition)
            first, _ = spans.get(key, (record.offset, 0))
            spans[key] = (first, record.offset + 1)
        for (topic, partition), (first, behind) in spans.items():
            self._recorder.add(
                "offset_commits",
                transaction.number,
                self._process,
                self._settings.group,
                f"{topic}/{partition}",
                first,
                behind,
                self._recorder.now_ns(),
                OpOutcome.INFO,
            )
        return {key: behind for key, (_, behind) in spans.items()}
