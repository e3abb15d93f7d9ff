"""Test that the checks of invariants report violations, and nothing else."""

import contextlib
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.coordinator.controller import controller
from oncelog.storage import disk_guard
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import CorruptMessage, KafkaStorageError
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

from .fault_schedule import DEAF
from .invariants import ENTRIES_MAX, Invariants
from .outcome import Fault, Shape
from .run import run_seed
from .virtual_node import VirtualNode

TOPIC_ID = bytes(range(16))


def replica(directory: Path, values: list[bytes]) -> Any:
    """Return a replica of a partition with these values, all of them committed."""
    log = PartitionLog.open(
        directory, topic="t", partition=0, topic_id=TOPIC_ID, config=LogConfig(), now_ms=0
    )
    for value in values:
        batch = memoryview(bytearray(encode_batch([Record(0, 0, None, value)])))
        log.append_as_leader(batch, decode_header(batch), leader_epoch=0, now_ms=0)
    log.advance_high_watermark(log.log_end_offset)
    return SimpleNamespace(log=log, key=(TOPIC_ID, 0), topic="t", leader=None)


class TwoNodes:
    """A stand-in for a cluster of two nodes, each with one replica."""

    def __init__(self, *hosted: Any) -> None:
        self.timeline = SimpleNamespace(now=0.0)
        self.shape = SimpleNamespace(size=0)
        self.nodes = {
            i: SimpleNamespace(
                node_id=i,
                starts=1,
                is_serving=True,
                has_damage=False,
                disk=SimpleNamespace(error=0),
            )
            for i in range(1, len(hosted) + 1)
        }
        for i, one in enumerate(hosted, 1):
            self.put(i, one)

    def put(self, node_id: int, hosted: Any) -> None:
        replicas = SimpleNamespace(_by_name={("t", 0): hosted})
        self.nodes[node_id].broker = SimpleNamespace(replicas=replicas)

    def watched(self) -> Invariants:
        cluster: Any = self
        recorder: Any = None
        return Invariants(cluster, recorder)


def look(invariants: Invariants, times: int = 80) -> list[str]:
    """Compare replicas several times, and return the names of the violations."""
    for _ in range(times):
        invariants.looks += 1
        invariants._compare_some()
    return [name for name, _ in invariants.found]


def looked_at(folder: Path) -> tuple[TwoNodes, Invariants]:
    """Return a cluster with two equal replicas, all bytes of which were compared."""
    cluster = TwoNodes(*(replica(folder / name, [b"one", b"two"]) for name in "ab"))
    invariants = cluster.watched()
    assert look(invariants) == []
    return cluster, invariants


def test_invariant_check_of_replicas_reports_only_differing_bytes(tmp_path: Path) -> None:
    values = [b"one", b"two"]
    one, same = replica(tmp_path / "a", values), replica(tmp_path / "b", values)
    assert look(TwoNodes(one, same).watched()) == []
    other = replica(tmp_path / "c", [b"one", b"too"])
    assert look(TwoNodes(one, other).watched()) == ["replicas differ"]


def test_invariant_check_of_a_restarted_node_reads_its_log_from_the_start(tmp_path: Path) -> None:
    cluster, invariants = looked_at(tmp_path)
    cluster.put(2, replica(tmp_path / "after a power cut", [b"won", b"two"]))
    cluster.nodes[2].starts += 1
    assert look(invariants) == ["replicas differ"]


def test_invariant_check_at_the_end_compares_all_bytes_again(tmp_path: Path) -> None:
    cluster, invariants = looked_at(tmp_path)
    cluster.put(2, replica(tmp_path / "changed", [b"won", b"two"]))
    invariants.look_at_all()
    assert [name for name, _ in invariants.found] == ["replicas differ"]


def test_invariant_check_reports_the_same_raft_decision_proposed_endlessly() -> None:
    """A leader once proposed a refused ISR change again and again, as fast as Raft committed."""
    nodes = TwoNodes()
    invariants = nodes.watched()
    for index in range(3 * ENTRIES_MAX):
        nodes.timeline.now = index / (ENTRIES_MAX - 1)  # busy, but not that busy
        for _ in range(3):  # on each node
            invariants._entry(0, index, b"the same")
    assert invariants.found == []
    for index in range(3 * ENTRIES_MAX, 5 * ENTRIES_MAX):
        nodes.timeline.now += 0.5 / ENTRIES_MAX
        invariants._entry(0, index, b"the same")
    assert {name for name, _ in invariants.found} == {"restless"}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_invariant_check_reports_a_log_failed_by_a_read_without_file_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    hosted = replica(tmp_path, [b"one"])
    cluster = TwoNodes(hosted)
    invariants = cluster.watched()

    def fail(*_: Any) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched, contextlib.suppress(KafkaStorageError):
        patched.setattr(os, "pread", fail)
        if number == errno.EMFILE:  # as a guard would that is not made for reading
            patched.setattr(disk_guard, "OUT_OF_RESOURCES", frozenset())
        hosted.log.read(0, 100, upper_offset=1)
    assert hosted.log.is_failed
    invariants._partitions(cast(VirtualNode, cluster.nodes[1]))
    expected = ["failed by a read"] if number == errno.EMFILE else []
    assert [name for name, _ in invariants.found] == expected


@pytest.mark.in_turn
@pytest.mark.parametrize("switch", [False, True])
def test_invariant_check_reports_a_node_that_receives_nothing_and_is_not_fenced(
    monkeypatch: pytest.MonkeyPatch, switch: bool
) -> None:
    if switch:
        monkeypatch.setattr(controller, "DEAF_SESSIONS", 1_000)
    deaf = Fault(at_s=0.5, kind="one-way", target="2", seconds=20.0, amount=DEAF)
    pause = Fault(at_s=9.0, kind="pause", target="2", seconds=1.0)  # the others can decide
    outcome = run_seed(1, shape=Shape(seconds=22.0, pace=24.0), faults=[deaf, pause])
    assert outcome.names == ({"deaf and not fenced"} if switch else set())


def test_invariant_check_reports_a_replica_not_opened_on_an_undamaged_disk() -> None:
    """The replica is reported once for each process.

    A replica that could not be opened during a disk fault is not reported.
    """
    cluster = TwoNodes()
    invariants = cluster.watched()
    failed: set[tuple[str, int]] = {("t", 0)}
    broker = SimpleNamespace(_roles=SimpleNamespace(_unusable=failed))
    node: Any = SimpleNamespace(node_id=1, starts=1, is_hurt=True, has_damage=False, broker=broker)
    invariants._not_opened(node)
    node.is_hurt = False
    invariants._not_opened(node)
    assert invariants.found == []
    failed.add(("t", 1))
    for _ in range(2):
        invariants._not_opened(node)
    assert [name for name, _ in invariants.found] == ["not opened"]


def test_invariant_check_reports_once_a_log_marked_damaged_without_damage(
    tmp_path: Path,
) -> None:
    hosted = replica(tmp_path / "a", [b"one"])
    hosted.log.damage.found(CorruptMessage("no batch"))
    node: Any = SimpleNamespace(node_id=1, starts=1, is_hurt=False, was_hurt=False, has_damage=True)
    invariants = TwoNodes(hosted).watched()
    invariants._damaged(node, hosted)
    assert invariants.found == []
    node.has_damage = False
    invariants._damaged(node, hosted)
    invariants._damaged(node, hosted)
    ((name, words),) = invariants.found
    assert name == "log damaged"
    assert words.endswith("no batch")
    hosted.log.local.retire()


def test_invariant_check_reports_a_producer_without_its_last_batch_in_the_log(
    tmp_path: Path,
) -> None:
    log = replica(tmp_path / "a", [b"one"]).log
    invariants = TwoNodes().watched()
    records = [Record(0, 0, b"k", b"two")]
    batch = memoryview(
        bytearray(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0))
    )
    log.append_as_leader(batch, decode_header(batch), leader_epoch=0, now_ms=0)
    invariants._last_batches(log)
    assert invariants.found == []
    log.producer_state.append(decode_header(batch)._replace(base_sequence=1), 2, 0)
    invariants._last_batches(log)
    ((name, words),) = invariants.found
    assert name == "producer forgotten"
    assert words.endswith("producer 7 is at (0, 1), in the log at (0, 0)")
    log.local.retire()
