"""Test power cuts during the compaction of a log, and during a follower's truncation.

The product's code runs on a disk that tracks synced bytes (tests/simulation). The power is cut at
every n-th change of the disk. Then the log is opened on the restarted machine.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.node.clock import SystemClock
from oncelog.node.partitions.checkpoint_writer import CheckpointWriter
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.log_compaction import LogCompaction
from oncelog.node.partitions.replica_fetchers import ReplicaFetchers
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.node.partitions.replication_throttle import ReplicationThrottle
from oncelog.replication.messages import decode_fetch_request, encode_fetch_response
from oncelog.replication.replica_server import ReplicaServer
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.steps import run_to_end
from oncelog.storage.checkpoint import CLEANED_OFFSETS, RECOVERY_POINTS, OffsetCheckpoint
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.directory.partition_offsets import CHECKPOINTS
from oncelog.storage.log_config import LogConfig
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...awaiting import turns_until
from ...log_batches import COMPACTED, append_as_leader, batches_in
from ...log_directories import open_partition
from ...simulation.virtual_disk import Disks
from ...simulation.virtual_loop import Timeline
from ..fake_broker import broker_config
from ..hosted_logs import TOPIC_ID, data_directory
from ..leading_broker import LeadingBroker

NOW_MS = 1_700_000_000_000
# A seed gives the first disk operation with a power cut. By default only some seeds run.
OTHERS = pytest.mark.chaos


class SameThread(Executor):
    """An executor that runs each job immediately in the caller's thread."""

    def submit(self, job: Callable[..., Any], /, *args: Any, **keywords: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(job(*args, **keywords))
        except BaseException as error:
            future.set_exception(error)
        return future


class Machine:
    """A machine with a simulated disk, which refuses changes after the power cut."""

    def __init__(self, path: Path, seed: int) -> None:
        self.disks = Disks(path, Timeline(seed), [1])
        self.disk = self.disks.nodes[1]
        self.disk.on_last_operation = self._stop
        self.is_off = False

    def _stop(self) -> bool:
        self.is_off = True
        self.disk.is_in_use = False
        return True

    def open(self, boot_id: str) -> LogDirectory:
        return data_directory(Path(self.disk.path), boot_id=boot_id)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Use the simulated disk while the context is open, and then close all its files."""
        with self.disks.installed():
            yield
            gc.collect()

    def restart(self, config: LogConfig, boot_id: str = "boot-2") -> tuple[list[bytes], int]:
        """Restart the machine, or only the process if the boot id is "boot-1".

        Returns the batches of the log and its end offset.
        """
        self.disks.died(1)
        if boot_id != "boot-1":
            self.disk.cut_power()
        self.disk.is_in_use = True
        directory = self.open(boot_id)
        log = open_partition(directory, "t", 0, TOPIC_ID, config, NOW_MS)
        directory.release()
        return batches_in(log), log.log_end_offset


def make_batch(key: bytes, value: bytes, offset: int = 0, epoch: int = 1) -> bytes:
    record = Record(offset, NOW_MS, key, value)
    return encode_batch([record], base_offset=offset, leader_epoch=epoch)


def write_checkpoints(directory: LogDirectory) -> None:
    for name in CHECKPOINTS:
        directory.write_offsets(name, run_to_end(directory.collect_offsets(name)))


PUTS = 17
SMALL = replace(COMPACTED, segment_bytes=400, flush_messages=1)


@pytest.mark.in_turn
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=OTHERS) for seed in (1, 2))])
def test_power_cut_during_a_compaction_loses_no_synced_record(tmp_path: Path, seed: int) -> None:
    """The gaps left by a compaction must not look like records lost in the power cut."""

    def live(machine: Machine, operations: int | None) -> tuple[dict[bytes, bytes], int]:
        directory = machine.open("boot-1")
        log = open_partition(directory, "t", 0, TOPIC_ID, SMALL, NOW_MS)
        directory.note_recovered()
        last: dict[bytes, bytes] = {}
        for n in range(PUTS):
            key = b"a" if n % 2 else b"b%d" % n
            append_as_leader(log, make_batch(key, b"%d" % n), epoch=1, now_ms=NOW_MS)
            log.flushing.flush()
            log.advance_high_watermark(log.log_end_offset)
            last[key] = b"%d" % n
            if n == 0:
                write_checkpoints(directory)  # the recovery point 1 is on the disk
        machine.disk.operations_left = operations
        asyncio.run(compact(machine, directory))
        return last, log.log_end_offset

    async def compact(machine: Machine, directory: LogDirectory) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        cleaner = LogCleaner()
        executor = SameThread()
        work, clock = SlicedWork(), SystemClock()
        points, cleaned = (
            CheckpointWriter(directory, name, executor, work)
            for name in (RECOVERY_POINTS, CLEANED_OFFSETS)
        )
        compaction = LogCompaction(
            directory, cleaner, clock, executor, points, cleaned, work, backoff_ms=0
        )
        is_clean = OffsetCheckpoint(directory.path / CLEANED_OFFSETS).read
        await turns_until(lambda: machine.is_off or is_clean())
        await compaction.stop()

    operations, batch_counts = seed, set()
    while True:
        machine = Machine(tmp_path / str(operations), seed)
        with machine.running():
            last, end_offset = live(machine, operations)
            batches, found_end = machine.restart(SMALL)
        found = {record.key: record.value for b in batches for record in decode_batch(b)}
        assert (found, found_end) == (last, end_offset), operations
        batch_counts.add(len(batches))
        if not machine.is_off:
            break
        operations += 5
    assert operations > 50 and len(batch_counts) > 2


FOLLOWED = LogConfig(segment_bytes=1000)


class Leader:
    """Node 1, which leads the partition with a log that differs from the follower's.

    It answers fetches without a network.
    """

    def __init__(self, directory: Path, machine: Machine) -> None:
        self.broker = LeadingBroker(directory)
        self._server = ReplicaServer(
            self.broker.replicas.get_by_id,  # type: ignore[arg-type]
            self.broker.replicas.peers,
            broker_epoch=1,
        )
        self._machine = machine

    def on_peer_change(self, _: Any) -> None:
        pass

    def ask(self, _leader: int, _type: Any, body: Any, *, answered: Any, **_: Any) -> None:
        if self._machine.is_off:
            return
        now_ms = self.broker.clock.monotonic_ms()
        header = body[0] if isinstance(body, tuple) else body
        self._server.on_request(2, decode_fetch_request(header), answered, now_ms)
        for _follower, reply, response in self._server.take_responses(now_ms):
            assert callable(reply)
            outcome = encode_fetch_response(response)
            asyncio.get_running_loop().call_soon(reply, outcome)


@pytest.mark.in_turn
@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])
@pytest.mark.parametrize(
    ("begin", "seed"),
    [
        (0, 0),
        (0, 1),
        (100, 0),
        *(pytest.param(*more, marks=OTHERS) for more in ((0, 2), (0, 3), (100, 1))),
    ],
)
def test_kill_or_power_cut_during_a_truncation_leaves_no_gap_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, begin: int, seed: int, boot_id: str
) -> None:
    """Synced records are truncated and replaced by records of the leader.

    `begin` is the leader's log start offset. If it is past the follower's end, the whole log is
    deleted.
    """
    caplog.set_level(logging.CRITICAL, "oncelog.node")  # captured records would keep files open

    def old(offset: int) -> bytes:
        return make_batch(b"k", b"v" * 11, offset, 1)

    def new(offset: int) -> bytes:
        return old(offset) if offset < 25 else make_batch(b"k", b"v" * 12, offset, 2)

    async def follow(machine: Machine, operations: int | None) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        directory = machine.open("boot-1")
        log = open_partition(directory, "t", 0, TOPIC_ID, FOLLOWED, NOW_MS)
        directory.note_recovered()
        for offset in range(45):
            log.append_as_follower(old(offset), now_ms=NOW_MS)
        log.flushing.flush()
        write_checkpoints(directory)
        leader = Leader(tmp_path / f"leader-{operations}", machine)
        led = leader.broker.partition()
        led.log.truncation.truncate_fully_and_start_at(begin)
        for offset in range(begin, begin + 65):
            led.log.append_as_follower(new(offset), now_ms=NOW_MS)
        record = PartitionRegistration(replicas=(1, 2), isr=(1,), leader=1, leader_epoch=3)
        leader.broker.make_leader(led, record)
        replicas = ReplicaManager(clock=SystemClock(), partition_exists=lambda *_: True)
        replicas.flusher.executor = SameThread()
        replicas.checkpoints = (
            CheckpointWriter(directory, RECOVERY_POINTS, SameThread(), SlicedWork()),
        )
        hosted = HostedPartition("t", 0, TOPIC_ID, log)
        replicas.add(hosted)
        config = broker_config(replica_fetch_wait_max_ms="1")
        throttle = ReplicationThrottle(ClusterState(), config, "follower", lambda: NOW_MS)
        fetchers = ReplicaFetchers(leader, replicas, config, throttle)  # type: ignore
        fetchers.broker_epoch = 1
        hosted.follow(record)
        machine.disk.operations_left = operations
        fetchers.follow(hosted)
        await turns_until(lambda: machine.is_off or log.log_end_offset == begin + 65)
        fetchers.stop()

    operations = seed % 3
    while True:
        machine = Machine(tmp_path / str(operations), seed)
        with machine.running():
            asyncio.run(follow(machine, operations))
            batches, end_offset = machine.restart(FOLLOWED, boot_id)
        assert batches in (
            [old(offset) for offset in range(end_offset)],
            [new(offset) for offset in range(begin, end_offset)],
        ), operations
        assert end_offset >= 25 or begin
        if not machine.is_off:
            break
        operations += 8
    assert operations > 40
