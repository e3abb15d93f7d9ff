"""Test how replicas become leaders and followers after metadata changes, on a slow disk."""

import asyncio
import errno
import os
import threading
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import NO_LEADER, PartitionRegistration
from oncelog.coordinator.metadata.commands import (
    AlterPartitionReassignments,
    CreateTopics,
    NewTopic,
    Reassignment,
    RegisterBroker,
    UnfenceBroker,
    encode_command,
)
from oncelog.node.partitions import roles
from oncelog.node.partitions.damaged_logs import DamagedLogs
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.roles import SETTLED_AT_ONCE_MAX
from oncelog.replication.delayed_operations import DelayedProduce
from oncelog.storage.checkpoint import PartitionMetadata
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.flush_job import FlushJob
from oncelog.storage.log_opening import LogOpening
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.damage import Damaged, SteppedDown
from oncelog.wire.errors import (
    ErrorCode,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)

from ...awaiting import until
from ..hosted_logs import RecordedFailures
from ..own_broker import running

NEW_ID = b"another topic id"


async def test_logs_of_new_partitions_are_opened_in_a_thread_and_served_when_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log = PartitionLog.opening.__func__  # type: ignore[attr-defined]
    threads = set()

    def noted(cls: type[PartitionLog], directory: Path, **keywords: Any) -> Any:
        threads.add(threading.current_thread())
        return open_log(cls, directory, **keywords)

    monkeypatch.setattr(PartitionLog, "opening", classmethod(noted))
    async with running(tmp_path) as broker:
        broker.directories.hold()
        await broker.create("a", 3 * SETTLED_AT_ONCE_MAX)
        await until(broker.directories.is_entered.is_set)
        with pytest.raises(NotLeaderOrFollower):
            broker.replicas.partition("a", 0)
        broker.directories.release()
        await until(lambda: broker.serves("a", 3 * SETTLED_AT_ONCE_MAX))
    assert threading.main_thread() not in threads
    assert len(threads) == 1


async def test_topic_deleted_while_its_logs_are_opened_leaves_only_renamed_directories(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        broker.directories.hold()
        await broker.create("a", 40)
        await until(broker.directories.is_entered.is_set)
        await broker.delete("a")
        broker.directories.release()
        await until(lambda: not broker._roles._for_thread)
        await until(lambda: all(".0" in name for name in broker.directories_of("a")))
        assert len(broker.replicas) == 0
        assert broker.directory.logs == {}


async def test_topic_recreated_while_its_logs_are_opened_has_the_new_id(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        broker.directories.hold()
        await broker.create("a")
        await until(broker.directories.is_entered.is_set)
        await broker.delete("a")
        await broker.create("a", topic_id=NEW_ID)
        broker.directories.release()
        await until(lambda: broker.serves("a"))
        for index in range(2):
            hosted = broker.replicas.partition("a", index)
            assert hosted.topic_id == hosted.log.topic_id == NEW_ID
            assert broker.directory.logs["a", index] is hosted.log
            assert not hosted.log.is_failed


@pytest.mark.parametrize("count", [2, 3 * SETTLED_AT_ONCE_MAX])
async def test_deleted_topic_immediately_stops_being_served(tmp_path: Path, count: int) -> None:
    """A topic of the same name may be created again at once."""
    async with running(tmp_path) as broker:
        await broker.create("a", count)
        await until(lambda: broker.serves("a", count))
        before = [broker.replicas.partition("a", index) for index in range(count)]
        broker.directories.hold()
        seen = []

        def look(changes: Any) -> None:  # in the turn of the event loop that applies the change
            if changes.topics_deleted:
                seen.append([one.leader for one in before])
                with pytest.raises(UnknownTopicOrPartition):
                    broker.replicas.partition("a", count - 1)

        broker.state.on_change(look)
        await broker.delete("a")
        assert seen == [[None] * count]
        await broker.create("a", count, topic_id=NEW_ID)
        broker.directories.release()
        await until(lambda: broker.serves("a", count))
        assert all(one.log.is_failed for one in before)
        names = broker.directories_of("a")
        assert sum(not name.endswith("-delete") for name in names) == count


@pytest.mark.parametrize(
    ("is_deleted", "error"),
    [
        (True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_waiting_produce_of_a_removed_replica_gets_unknown_topic_only_after_a_deletion(
    tmp_path: Path, is_deleted: bool, error: ErrorCode
) -> None:
    """If the replica was reassigned instead, the error is NOT_LEADER_OR_FOLLOWER."""
    async with running(tmp_path) as broker:
        submit = broker.metadata_group.submit
        await submit(encode_command(RegisterBroker(2, bytes(16), "boot", "127.0.0.1", 1)))
        other = broker.state.brokers[2].broker_epoch
        await submit(encode_command(UnfenceBroker(2, other)))
        topic = NewTopic("a", b"a".ljust(16), assignments=((0, (1, 2)),))
        await submit(encode_command(CreateTopics((topic,))))
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        waits_for: dict[Hashable, int] = {broker.replicas.partition("a", 0): 1}
        produce = DelayedProduce(waits_for, 1 << 62, context=lambda _: None)
        broker.replicas.purgatory.watch_produce(produce)
        if is_deleted:
            await broker.delete("a")
        else:
            move = AlterPartitionReassignments((Reassignment("a", 0, (2,)),))
            await submit(encode_command(move))
        await until(lambda: bool(produce.outcomes))
        assert [*produce.outcomes.values()] == [error]


async def test_roles_of_open_logs_do_not_wait_for_logs_being_opened(tmp_path: Path) -> None:
    """While one log is being opened, other partitions change their leaders without delay."""
    async with running(tmp_path) as broker:
        await broker.create("a")
        await until(lambda: broker.serves("a"))
        broker.directories.hold()
        await broker.create("b")
        await until(broker.directories.is_entered.is_set)
        hosted = broker.replicas.partition("a", 0)
        parts = []

        def look(changes: Any) -> None:
            parts.append((hosted.leader is not None, hosted.leader_id))

        broker.state.on_change(look)
        await broker.fence()
        await broker.unfence()
        assert (False, NO_LEADER) in parts
        assert parts[-1] == (True, 1)
        broker.directories.release()
        await until(lambda: broker.serves("b"))


async def test_roles_of_many_partitions_are_settled_in_slices(tmp_path: Path) -> None:
    """A turn of the loop settles only a few partitions."""
    now_ms = iter(range(10**9))
    async with running(tmp_path, slice_clock=lambda: next(now_ms) / 1000) as broker:
        count = 5 * SETTLED_AT_ONCE_MAX
        await broker.create("a", count)
        await until(lambda: broker.serves("a", count))
        led = []

        async def watch() -> None:
            while True:
                led.append(sum(one.leader is not None for one in broker.replicas))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await broker.fence()
        await broker.unfence()
        await until(lambda: min(led) < count and broker.serves("a", count))
        watching.cancel()
        steps = [abs(one - other) for one, other in pairwise(led)]
        assert max(steps) <= SETTLED_AT_ONCE_MAX


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_log_that_cannot_be_opened_now_is_opened_later_without_delay_of_other_logs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_deleted: bool,
) -> None:
    monkeypatch.setattr(roles, "REOPEN_S", 0.01)
    opened: Counter[str] = Counter()
    open_log = PartitionLog.opening.__func__  # type: ignore[attr-defined]

    def without_files(cls: type[PartitionLog], directory: Path, **keywords: Any) -> Any:
        opened[directory.name] += 1
        if directory.name == "a-1":
            directory.mkdir(exist_ok=True)
            PartitionMetadata(keywords["topic_id"]).write(directory)
            why = OSError(errno.EMFILE, "Too many open files")
            raise KafkaStorageError("the log of a-1 failed on disk") from why
        return (yield from open_log(cls, directory, **keywords))

    monkeypatch.setattr(PartitionLog, "opening", classmethod(without_files))
    async with running(tmp_path) as broker:
        failures = broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 3)
        await until(lambda: broker.replicas.get("a", 2) is not None)
        await until(lambda: opened["a-1"] > 2)
        assert failures.reported == [], "no other replica could lead it"
        assert broker.replicas.get("a", 1) is None
        assert "too many open files (Too many open files); this process may" in caplog.text
        assert caplog.text.count("a-1 cannot be opened") == 1
        monkeypatch.undo()
        if is_deleted:
            await broker.delete("a")
        else:
            await until(lambda: broker.serves("a", 3))
            assert [index for _, index in failures.withdrawn] == [1]
            return
        await broker.create("a", 3, topic_id=NEW_ID)
        await until(lambda: broker.serves("a", 3))
        assert not any("stray" in name for name in broker.directories_of("a"))


async def test_directories_of_deleted_logs_are_renamed_before_the_broker_has_stopped(
    tmp_path: Path,
) -> None:
    """The next process might start from a newer snapshot, which no longer shows the deletion."""
    count = 3 * SETTLED_AT_ONCE_MAX
    async with running(tmp_path) as broker:
        await broker.create("a", count)
        await until(lambda: broker.serves("a", count))
        broker.directories.hold()
        await broker.delete("a")
    assert all(name.endswith("-delete") for name in broker.directories_of("a"))


async def test_leader_without_a_free_descriptor_leads_when_one_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An elected replica first syncs its truncation, for which it opens files."""
    lead, failures = HostedPartition.lead, [OSError(errno.EMFILE, "Too many open files")]

    def lacking(hosted: HostedPartition, *args: Any, **keywords: Any) -> None:
        if failures:
            with hosted.log.local.disk.retriable:
                raise failures.pop()
        lead(hosted, *args, **keywords)

    async with running(tmp_path) as broker:
        monkeypatch.setattr(HostedPartition, "lead", lacking)
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        assert not failures


async def test_elected_replica_leads_only_after_its_truncation_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop does not wait for the sync, which may take seconds."""
    async with running(tmp_path) as broker:
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        hosted = broker.replicas.partition("a", 0)
        await broker.fence()
        await until(lambda: hosted.leader is None)
        hosted.log.truncation.truncate_fully_and_start_at(7)
        is_synced, sync = threading.Event(), FlushJob.run

        def slow(job: FlushJob) -> None:
            assert is_synced.wait(30)
            sync(job)

        monkeypatch.setattr(FlushJob, "run", slow)
        await broker.unfence()
        await until(lambda: hosted.leader_id == 1)
        with pytest.raises(NotLeaderOrFollower):
            hosted.leading()
        is_synced.set()
        await until(lambda: hosted.leader is not None)
        assert not hosted.log.flushing.is_cut_unsynced
        assert hosted.log.leader_epochs.latest_epoch == hosted.leader_epoch


Lists = tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
# The lists as (leader, ISR, ELR, last known ELR), and the next step of the damaged replica 1. It
# waits only without a leader: the election of one is the next change of the partition.
STEPS: list[tuple[Lists, str]] = [
    ((2, (2, 3), (), ()), "repairs"),
    ((2, (2,), (), ()), "repairs"),
    ((2, (2,), (3,), ()), "repairs"),
    ((2, (2,), (), (3,)), "repairs"),
    ((2, (1, 2), (), ()), "reports"),
    ((2, (2,), (1,), ()), "reports"),  # an election from the ELR would take its empty log
    ((2, (2,), (), (1,)), "repairs"),
    ((2, (2,), (3,), (1,)), "repairs"),
    ((1, (1,), (), ()), "reports"),
    ((1, (1, 2), (), ()), "reports"),
    ((NO_LEADER, (), (1, 2), ()), "waits"),
    ((NO_LEADER, (), (2,), (1,)), "waits"),
    ((NO_LEADER, (), (2,), ()), "waits"),
]


def lists(leader: int, isr: Any, elr: Any, last_known_elr: Any) -> PartitionRegistration:
    return PartitionRegistration(
        (1, 2, 3), isr, leader, 9, 9, elr=elr, last_known_elr=last_known_elr
    )


@pytest.mark.parametrize(("record", "step"), STEPS)
async def test_damaged_replica_is_copied_again_only_outside_isr_and_elr(
    tmp_path: Path, record: Lists, step: str
) -> None:
    async with running(tmp_path) as broker:
        failures = broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        hosted = broker.replicas.partition("a", 0)
        hosted.log.local.disk.failure = Damaged("a byte has changed")
        assert not broker._roles._revived(hosted, lists(*record))
        assert (broker.replicas.get("a", 0) is None) == (step == "repairs")
        assert failures.reported == [hosted.key] * (step == "reports")


@pytest.mark.parametrize(("record", "step"), STEPS)
async def test_log_that_cannot_be_opened_is_copied_again_only_outside_isr_and_elr(
    tmp_path: Path, record: Lists, step: str
) -> None:
    key = ("a", 0)
    async with running(tmp_path) as broker:
        failures = broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        hosted = broker.replicas.partition(*key)
        broker.state.put_partition(key, lists(*record))
        broker._logs.damaged.cannot_open(key, "a byte has changed")
        broker._roles._cannot_open(key, hosted.topic_id, may_pass=False)
        assert (key in broker._roles._for_thread) == (step == "repairs")
        if step != "waits":
            assert failures.reported == [hosted.key] * (step == "reports")


async def test_damaged_replica_elected_before_its_repair_leads_with_its_own_records(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        hosted = broker.replicas.partition("a", 0)
        log = hosted.log
        log.damage.words, log.damage.is_in_batches = "a byte has changed", True
        log.local.disk.failure = SteppedDown(log.damage.words)
        # Two changes come before the thread is free: 2 leads, and then 1 leads.
        assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
        await until(lambda: broker.serves("a", 1))
        assert broker.replicas.partition("a", 0).log is log
        assert log.log_end_offset == 1 and not log.is_failed
        assert not list((broker.root / "data").glob("*-damaged"))


async def test_damaged_replica_without_a_leader_is_repaired_after_the_next_election(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        hosted = broker.replicas.partition("a", 0)
        log = hosted.log
        log.damage.words, log.damage.is_in_batches = "a byte has changed", True
        log.local.disk.failure = Damaged(log.damage.words)
        broker.state.put_partition(("a", 0), lists(NO_LEADER, (), (2,), ()))
        assert not broker._roles._revived(hosted, lists(2, (2,), (), ()))
        await until(lambda: broker.replicas.get("a", 0) is not None)
        assert broker.replicas.partition("a", 0).log is log and log.is_failed
        broker.state.put_partition(("a", 0), lists(2, (2, 3), (), ()))
        broker._roles._look_at({("a", 0): None})
        await until(lambda: broker.replicas.get("a", 0) is not None)
        assert broker.replicas.partition("a", 0).log is not log
        assert broker.replicas.partition("a", 0).log.log_end_offset == 0
        assert list((broker.root / "data").glob("*-damaged"))


@pytest.mark.parametrize("next_step", ["repaired", "elected", "deleted"])
async def test_damaged_replica_with_a_failed_repair_is_never_opened_as_an_undamaged_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_step: str
) -> None:
    monkeypatch.setattr(roles, "REOPEN_S", 0.01)
    attempts = Counter[str]()

    def no_room(_self: Any, topic: str, _partition: int) -> str:
        attempts[topic] += 1
        raise KafkaStorageError("no room") from OSError(errno.ENOSPC, "No space left on device")

    async with running(tmp_path) as broker:
        failures = broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        hosted = broker.replicas.partition("a", 0)
        log = hosted.log
        log.damage.words, log.damage.is_in_batches = "a byte has changed", True
        log.local.disk.failure = SteppedDown(log.damage.words)
        with monkeypatch.context() as context:
            context.setattr(LogDirectory, "set_aside", no_room)
            broker.state.put_partition(("a", 0), lists(2, (2, 3), (), ()))
            assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
            await until(lambda: attempts["a"] > 2)
            assert broker.replicas.get("a", 0) is None
            if next_step == "elected":
                broker.state.put_partition(("a", 0), lists(1, (1,), (), ()))
                await until(lambda: broker.serves("a", 1))
            elif next_step == "deleted":
                await broker.delete("a")
                await broker.create("a", 1, topic_id=NEW_ID)
                await until(lambda: broker.serves("a", 1))
        await until(lambda: broker.replicas.get("a", 0) is not None)
        now = broker.replicas.partition("a", 0).log
        assert (now is log) == (next_step == "elected")
        assert now.log_end_offset == (next_step == "elected")
        assert bool(list((broker.root / "data").glob("*-damaged"))) == (next_step == "repaired")
        assert ("a", 0) not in broker._roles._unusable
        assert (failures.withdrawn == [hosted.key]) == (next_step != "deleted")


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_repaired_log_that_cannot_be_opened_now_keeps_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(roles, "REOPEN_S", 0.01)
    open_log, failed = LogDirectory.open, Counter[str]()

    def without_files(self: LogDirectory, opening: LogOpening) -> Any:
        failed[opening.topic] += 1
        if failed[opening.topic] <= 2:
            raise KafkaStorageError("no file") from OSError(number, os.strerror(number))
        return open_log(self, opening)

    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        hosted = broker.replicas.partition("a", 0)
        log = hosted.log
        broker.append("a")
        await until(lambda: log.high_watermark == 1)
        log.retention.advance_log_start_offset(1)
        log.damage.words = "an index is damaged"
        log.local.disk.failure = SteppedDown(log.damage.words)
        monkeypatch.setattr(LogDirectory, "open", without_files)
        broker.state.put_partition(("a", 0), lists(2, (2, 3), (), ()))
        assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
        for attempt in range(1, 3):
            await until(lambda attempt=attempt: failed["a"] >= attempt)
            broker._roles._look_at({("a", 0): None})
        await until(lambda: broker.replicas.get("a", 0) is not None)
        now = broker.replicas.partition("a", 0).log
        assert now is not log and failed["a"] == 3
        assert (now.log_start_offset, now.high_watermark, now.log_end_offset) == (1, 1, 1)


async def test_topic_deleted_before_the_repair_of_its_damaged_log_leaves_no_records(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        hosted = broker.replicas.partition("a", 0)
        hosted.log.local.disk.failure = Damaged("a byte has changed")
        broker.directories.hold()
        await broker.create("b", 1)
        await until(broker.directories.is_entered.is_set)
        assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
        await broker.delete("a")
        await broker.create("a", 1, topic_id=NEW_ID)
        broker.directories.release()
        await until(lambda: broker.serves("a", 1) and broker.serves("b", 1))
        log = broker.replicas.partition("a", 0).log
        assert log is not hosted.log and log.topic_id == NEW_ID and log.log_end_offset == 0
        assert not broker._logs.metrics()["damaged"]


@pytest.mark.parametrize("is_repaired", [False, True])
async def test_log_that_cannot_be_opened_is_removed_when_its_partition_moves_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_repaired: bool
) -> None:
    failed = Counter[str]()

    def without_files(_self: LogDirectory, opening: LogOpening) -> Any:
        failed[opening.topic] += 1
        raise KafkaStorageError("no file") from OSError(errno.EMFILE, "Too many open files")

    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        hosted = broker.replicas.partition("a", 0)
        hosted.log.damage.words = "an index is damaged"
        hosted.log.local.disk.failure = SteppedDown(hosted.log.damage.words)
        monkeypatch.setattr(LogDirectory, "open", without_files)
        if is_repaired:
            broker.state.put_partition(("a", 0), lists(2, (2, 3), (), ()))
            assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
        else:
            broker.replicas.remove(hosted)
            broker._roles._look_at({("a", 0): None})
        await until(lambda: failed["a"] > 0 and ("a", 0) in broker._roles._unusable)
        assert broker.directories_of("a") == ["a-0"]
        broker.state.put_partition(("a", 0), replace(lists(2, (2, 3), (), ()), replicas=(2, 3)))
        broker._roles._look_at({("a", 0): None})
        await until(lambda: "a-0" not in broker.directories_of("a"))
        assert ("a", 0) not in broker._roles._unusable
        assert not broker._logs.metrics()["damaged"]


@pytest.mark.parametrize("next_step", ["in sync", "in sync after a restart", "deleted", "elected"])
async def test_directory_of_a_damaged_log_is_removed_when_the_replica_is_in_sync_or_deleted(
    tmp_path: Path, next_step: str
) -> None:
    """The replica is fetched anew, and the damaged directory is kept until it is in sync.

    If it is elected before, it may lack records of the damaged log, which is then kept as stray.
    """

    def kept(suffix: str = "damaged") -> list[Path]:
        return list((tmp_path / "data").glob(f"*-{suffix}"))

    def see(broker: Any, record: PartitionRegistration) -> None:
        broker.state.put_partition(("a", 0), record)
        broker._roles._look_at({("a", 0): None})

    async with running(tmp_path) as broker:
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.append("a")
        hosted = broker.replicas.partition("a", 0)
        hosted.log.damage.words, hosted.log.damage.is_in_batches = "a byte has changed", True
        hosted.log.local.disk.failure = SteppedDown(hosted.log.damage.words)
        broker.state.put_partition(("a", 0), lists(2, (2, 3), (), ()))
        assert not broker._roles._revived(hosted, lists(2, (2, 3), (), ()))
        await until(lambda: broker.replicas.get("a", 0) is not None)
        assert kept()
        if next_step == "in sync after a restart":
            broker._logs.damaged = DamagedLogs(broker._logs.directory)
            assert broker._logs.metrics()["damaged"]
        if next_step == "deleted":
            await broker.delete("a")
            await until(lambda: "a-0" not in broker.directories_of("a"))
        else:
            if next_step == "elected":
                see(broker, lists(1, (1,), (), ()))
            see(broker, lists(1, (1, 2), (), ()))
        await broker._maintenance._purge()
        assert not kept() and bool(kept("stray")) == (next_step == "elected")
        assert not broker._logs.metrics()["damaged"]
    async with running(tmp_path) as broker:
        await broker._maintenance._purge()
        assert bool(kept("stray")) == (next_step == "elected")
        assert not broker._logs.metrics()["damaged"]


async def test_log_of_a_partition_that_moves_away_and_back_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that removes the first log's directory runs before the second log is opened."""
    open_log, failed = LogDirectory.open, Counter[str]()
    monkeypatch.setattr(roles, "REOPEN_S", 0.01)

    def without_files(_self: LogDirectory, opening: LogOpening) -> Any:
        failed[opening.topic] += 1
        raise KafkaStorageError("no file") from OSError(errno.EMFILE, "Too many open files")

    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        monkeypatch.setattr(LogDirectory, "open", without_files)
        await broker.create("a", 1)
        await until(lambda: ("a", 0) in broker._roles._unusable)
        record = broker.state.partition("a", 0)
        assert record is not None
        monkeypatch.setattr(LogDirectory, "open", open_log)
        broker.directories.hold()
        await until(broker.directories.is_entered.is_set)
        for now in (replace(record, replicas=(2, 3)), record):
            broker.state.put_partition(("a", 0), now)
            broker._roles._look_at({("a", 0): None})
        broker.directories.release()
        await until(lambda: broker.serves("a", 1) and not broker._roles._for_thread)
        assert broker.append("a").directory.is_dir()
        assert broker.directories_of("a").count("a-0") == 1


async def test_log_that_cannot_be_opened_now_has_only_one_next_attempt_scheduled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of the metadata also tries to open the log, but schedules no attempt."""
    failed = Counter[str]()

    def without_files(_self: LogDirectory, opening: LogOpening) -> Any:
        failed[opening.topic] += 1
        raise KafkaStorageError("no file") from OSError(errno.EMFILE, "Too many open files")

    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        monkeypatch.setattr(roles, "REOPEN_S", 1e6)
        monkeypatch.setattr(LogDirectory, "open", without_files)
        await broker.create("a", 1)
        for attempt in range(1, 6):
            await until(lambda attempt=attempt: failed["a"] == attempt)
            broker._roles._look_at({("a", 0): None})
        await until(lambda: failed["a"] == 6 and not broker._roles._for_thread)
        due = asyncio.get_running_loop().time() + 9e5
        timers: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore
        assert sum(timer.when() > due and not timer.cancelled() for timer in timers) == 1


async def test_broker_with_logs_that_cannot_be_opened_for_now_completes_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempts of many logs take longer than the pause before their next attempts."""
    async with running(tmp_path) as broker:
        await broker.create("a", 40)
        await until(lambda: broker.serves("a", 40))
    open_log = LogDirectory.open

    def without_files(self: LogDirectory, opening: LogOpening) -> Any:
        if opening.topic == "a":
            raise KafkaStorageError("no file") from OSError(errno.EMFILE, "Too many open files")
        return open_log(self, opening)

    monkeypatch.setattr(roles, "REOPEN_S", 0.0)
    monkeypatch.setattr(LogDirectory, "open", without_files)
    async with asyncio.timeout(10), running(tmp_path) as broker:
        monkeypatch.setattr(LogDirectory, "open", open_log)
        await until(lambda: broker.serves("a", 40))
