"""The invariants of a simulated cluster, checked while it runs.

two leaders            a partition has one leader in a leader epoch, a Raft group one in a term
watermark went back    a leader's high watermark rises within its epoch
watermarks crossed     log start <= last stable offset <= high watermark <= log end
leader lacks records   a leader of the newest epoch has everything that was ever committed
member lacks records   every live member of its ISR has these records as well
replicas differ        all replicas have the same bytes below the high watermark
failed by a read       a log does not fail because a read lacks file descriptors
log damaged            no log is marked as damaged unless a file was damaged
producer forgotten     compaction keeps the last batch of each known producer
not opened             a replica on an undamaged disk can be opened
deaf and not fenced    a broker that receives from no other broker is soon fenced
hole in a log          a log that is not compacted has no missing offset
applied differs        a Raft entry is the same on all nodes, also after restarts
restless               the same Raft entry is not proposed again and again
"""

import contextlib
import errno
import traceback
import zlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from oncelog.coordinator.raft.applier import Applier
from oncelog.coordinator.raft.library import LEADER
from oncelog.coordinator.transactions.shard import TransactionShard
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.storage.compaction.cleaning import CleanedGroup
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.damage import Damaged
from oncelog.storage.segments.log_file import scan_batches
from oncelog.wire.errors import CorruptMessage

from .virtual_cluster import VirtualCluster
from .virtual_node import VirtualNode

FOUND_MAX = 20
COMPARED_BYTES = 1 << 16
LACKING = (errno.ENOSPC, errno.EMFILE)
READS = frozenset(("read", "aborted_transactions", "batch_not_older"))  # of a PartitionLog
DEAF_SESSIONS_MAX = 2.5  # session timeouts under one controller, which fences after two
ENTRIES_MAX = 100  # of a Raft group in a second; the busiest seeds have 30


class Invariants:
    """The checks of one simulated cluster. `found` has (invariant, sentence) of each violation."""

    def __init__(self, cluster: VirtualCluster, recorder: Recorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.found: list[tuple[str, str]] = []
        self.looks = 0
        self._leaders: dict[tuple[Any, ...], int] = {}
        self._watermarks: dict[tuple[Any, ...], int] = {}
        self._committed: dict[tuple[bytes, int], int] = {}
        self._epochs: dict[tuple[bytes, int], int] = {}
        self._applied: dict[tuple[int, int], int] = {}
        self._batches: dict[tuple[bytes, int, int], int] = {}
        # How far replicas have been read, since their nodes started: the bytes below the old mark
        # that a kill or a power cut may have changed are read again.
        self._compared: dict[tuple[int, int, bytes, int], int] = {}
        self._unusable: dict[tuple[int, int], set[tuple[str, int]]] = {}  # by process
        self._doubted: set[tuple[Any, ...]] = set()  # replicas that were considered damaged
        self._is_first_to_apply = False
        self._deaf_one: tuple[int, int, int] = (0, 0, 0)  # the node, the controller, its term
        self._deaf_since = 0.0
        self._entries: dict[int, tuple[int, int]] = {}  # group -> (second, entries in that second)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Check the invariants regularly while the context is open.

        Checks run after every few events, at each applied Raft entry, and at each cleaned segment.
        """
        apply, put, swap = Applier.apply, TransactionShard._put, LogCleaner.swap
        invariants = self

        def watched(self: Applier, entry: bytes, index: int, term: int) -> Any:
            invariants._entry(self._group_id, index, entry)
            return apply(self, entry, index, term)

        def watched_put(self: TransactionShard, write: Any) -> None:
            invariants._decision(write.transactional_id, write.record)
            put(self, write)

        def watched_swap(self: LogCleaner, group: CleanedGroup) -> None:
            swap(self, group)
            assert self._log is not None
            invariants._last_batches(self._log)

        self.cluster.on_events = self.look
        patch = mock.patch.object
        with (
            patch(Applier, "apply", watched),
            patch(TransactionShard, "_put", watched_put),
            patch(LogCleaner, "swap", watched_swap),
        ):
            try:
                yield
            finally:
                self.cluster.on_events = None

    def look(self) -> None:
        """Check the invariants of Raft groups and partitions.

        ISR members are checked at every fourth call. Deaf brokers, and some bytes of replicas, are
        checked at every eighth call.
        """
        self.looks += 1
        if len(self.found) > FOUND_MAX:
            return
        for node in self.cluster.nodes.values():
            if node.loop is not None and node.broker is not None:
                self._raft(node)
                self._partitions(node)
                self._not_opened(node)
        if self.looks % 4 == 0:
            self._members()
        if self.looks % 8 == 0:
            self._compare_some()
            self._deaf()

    def look_at_all(self) -> None:
        """Compare all bytes of all replicas at the end of a run, also those compared before."""
        self._compared.clear()
        for node in self.cluster.nodes.values():
            for partition in _hosted(node):
                for _ in range(1000):
                    if not self._compare(node, partition):
                        break

    def _violated(self, name: str, words: str) -> None:
        self.found.append((name, f"{self.cluster.timeline.now:.3f}: {words}"))

    def _entry(self, group: int, index: int, entry: bytes) -> None:
        digest = zlib.crc32(entry)
        self._is_first_to_apply = (group, index) not in self._applied
        if self._is_first_to_apply:
            self._count(group)
        known = self._applied.setdefault((group, index), digest)
        if known != digest:
            self._violated("applied differs", f"entry {index} of Raft group {group}")

    def _count(self, group: int) -> None:
        second = int(self.cluster.timeline.now)
        before, count = self._entries.get(group, (second, 0))
        count = count + 1 if before == second else 1
        self._entries[group] = second, count
        if count == ENTRIES_MAX + 10 * self.cluster.shape.size:
            self._violated("restless", f"{count} entries of Raft group {group} in a second")

    def _decision(self, transactional_id: str, record: Any) -> None:
        """Record the state of a transaction in the history, when it is first applied."""
        if self._is_first_to_apply and record is not None:
            now_ns = self.cluster.timeline.now_ns
            self.recorder.add(
                "decisions", transactional_id, record.producer_id, record.producer_epoch,
                record.state.kafka_name, record.timeout_ms, now_ns, now_ns,
            )  # fmt: skip

    def _raft(self, node: VirtualNode) -> None:
        engine = getattr(node.broker, "engine", None)
        if engine is None:
            return
        for group_id, group in engine.groups.items():
            core = getattr(group, "_core", None)
            if core is not None and core.state == LEADER and not group._is_stopped:
                known = self._leaders.setdefault(("raft", group_id, core.term), node.node_id)
                if known != node.node_id:
                    self._violated(
                        "two leaders",
                        f"Raft group {group_id}, term {core.term}: {known} and {node.node_id}",
                    )

    def _partitions(self, node: VirtualNode) -> None:
        for hosted in _hosted(node):
            log, leader, key = hosted.log, hosted.leader, hosted.key
            if log.damage.words or isinstance(log.disk_failure, Damaged):
                self._damaged(node, hosted)
            if log.is_failed:
                self._failed(node, hosted)
                continue
            if leader is None:
                continue
            high, epoch = log.high_watermark, leader.leader_epoch
            if not log.log_start_offset <= log.last_stable_offset <= high <= log.log_end_offset:
                self._violated(
                    "watermarks crossed",
                    f"{hosted} on {node.node_id}: start {log.log_start_offset}, stable "
                    f"{log.last_stable_offset}, high {high}, end {log.log_end_offset}",
                )
            known = self._leaders.setdefault((key, epoch), node.node_id)
            if known != node.node_id:
                self._violated(
                    "two leaders", f"{hosted}, epoch {epoch}: {known} and {node.node_id}"
                )
            before = self._watermarks.get((key, epoch), 0)
            if high < before:
                self._violated(
                    "watermark went back", f"{hosted}, epoch {epoch}: from {before} to {high}"
                )
            elif high > before:
                self._watermarks[key, epoch] = high
                if high > self._committed.get(key, 0):
                    self._committed[key] = high
            if epoch >= self._epochs.get(key, 0):
                self._epochs[key] = epoch
                if log.log_end_offset < self._committed.get(key, 0):
                    self._violated(
                        "leader lacks records",
                        f"{hosted} on {node.node_id}, epoch {epoch}: its log ends at "
                        f"{log.log_end_offset}, committed was {self._committed[key]}",
                    )

    def _failed(self, node: VirtualNode, hosted: Any) -> None:
        failure = hosted.log.local.disk.failure
        if failure is None or failure.errno not in LACKING:
            return
        calls = {frame.name for frame in traceback.extract_tb(failure.__traceback__)}
        if calls & READS:
            self._violated("failed by a read", f"{hosted} on {node.node_id}: {failure}")

    def _last_batches(self, log: PartitionLog) -> None:
        """Check that an undamaged log has the last batch of each producer in the producer state."""
        found: dict[int, tuple[int, int]] = {}
        try:
            for segment in log.segments:
                for _, header, _ in scan_batches(segment.file, 0, segment.size_bytes):
                    if header.producer_id >= 0 and not header.is_control:
                        found[header.producer_id] = header.producer_epoch, header.last_sequence
        except CorruptMessage:
            return
        for entry in log.producer_state if log.local.rebuild is None else ():
            known = entry.epoch, entry.last_sequence
            is_in_log = entry.last_data_offset >= log.log_start_offset
            if is_in_log and found.get(entry.producer_id) != known:
                self._violated(
                    "producer forgotten",
                    f"{log.directory}: producer {entry.producer_id} is at {known}, "
                    f"in the log at {found.get(entry.producer_id)}",
                )

    def _damaged(self, node: VirtualNode, hosted: Any) -> None:
        """Report a log that was marked as damaged on a machine without a damaged file."""
        place = (node.node_id, node.starts, *hosted.key)
        if not (node.has_damage or node.is_hurt or node.was_hurt) and place not in self._doubted:
            self._doubted.add(place)
            why = hosted.log.damage.words or hosted.log.disk_failure
            self._violated("log damaged", f"{hosted} on {node.node_id}: {why}")

    def _not_opened(self, node: VirtualNode) -> None:
        known = self._unusable.setdefault((node.node_id, node.starts), set())
        for topic, index in unusable(node) - known:
            known.add((topic, index))
            if not node.is_hurt and not node.has_damage:
                self._violated("not opened", f"{topic}-{index} on {node.node_id}")

    def _deaf(self) -> None:
        """Check that a node that receives nothing is fenced, if other nodes can elect a leader."""
        now, nodes, wires = self.cluster.timeline.now, self.cluster.nodes, self.cluster.wires
        deaf = next((i for i in nodes if all(wires.is_cut(j, i) for j in nodes if j != i)), 0)
        controller = next((n for n in self.cluster.serving if controls(n)), None)
        if controller is None or deaf in (0, controller.node_id):
            self._deaf_one = (0, 0, 0)
            return
        broker: Any = controller.broker
        mine, one = controller.node_id, (deaf, controller.node_id, broker.metadata_group.term)
        sound = {n.node_id for n in self.cluster.serving if _has_sound_disk(n)}
        prompt = {i for i in sound if wires.is_prompt(mine, i) and wires.is_prompt(i, mine)}
        can_decide = mine in sound and len(prompt - {deaf}) > len(nodes) / 2 and not wires.loss
        if not can_decide or one != self._deaf_one:
            self._deaf_one, self._deaf_since = one, now
        session_s = nodes[deaf].config.broker_session_timeout_ms / 1_000
        if now - self._deaf_since < DEAF_SESSIONS_MAX * session_s:
            return
        if not broker.state.brokers[deaf].is_fenced:
            self._violated("deaf and not fenced", f"{deaf}, says {mine}")

    def _members(self) -> None:
        nodes = self.cluster.nodes
        for node in nodes.values():
            for hosted in _hosted(node):
                leader = hosted.leader
                if hosted.log.is_failed:
                    continue  # its ISR does not change
                if leader is None or leader.leader_epoch < self._epochs.get(hosted.key, 0):
                    continue
                # The leader may apply a decision of the controller some slices later.
                assert node.broker is not None
                known = node.broker.state.partition(hosted.topic, hosted.index)
                for member in leader.isr.intersection(known.isr if known is not None else ()):
                    self._member(hosted, nodes.get(member))

    def _member(self, hosted: Any, node: VirtualNode | None) -> None:
        if node is None or not node.is_serving or node.broker is None:
            return
        broker = node.broker
        state = broker.state.brokers.get(node.node_id)
        if state is None or state.broker_epoch != broker.liveness.broker_epoch:
            return
        mine = broker.replicas.get(hosted.topic, hosted.index)
        known = hosted.leader._peers.live.get(node.node_id)
        if mine is None or mine.key != hosted.key or mine.log.is_failed:
            return
        if known != broker.liveness.broker_epoch and node.node_id != hosted.leader.node_id:
            return  # the leader does not know its new incarnation yet
        record = broker.state.partition(hosted.topic, hosted.index)
        if (
            record is not None
            and record.partition_epoch > hosted.leader.partition_epoch
            and node.node_id not in record.isr
        ):
            return  # the follower has left the replicas, which the leader does not know yet
        if mine.log.log_end_offset < hosted.log.high_watermark:
            self._violated(
                "member lacks records",
                f"{hosted}: {node.node_id} is in sync with {hosted.leader.node_id} and ends at "
                f"{mine.log.log_end_offset}, below {hosted.log.high_watermark}",
            )

    def _compare_some(self) -> None:
        nodes = [n for n in self.cluster.nodes.values() if n.is_serving and not n.disk.error]
        if nodes:
            node = nodes[self.looks // 8 % len(nodes)]
            hosted = _hosted(node)
            if hosted:
                self._compare(node, hosted[self.looks // 8 // len(nodes) % len(hosted)])

    def _compare(self, node: VirtualNode, hosted: Any) -> bool:
        """Compare some bytes of a replica with other replicas. Return whether bytes are left."""
        log, key = hosted.log, hosted.key
        if log.is_failed or log.config.is_compacted:
            return False  # each replica is cleaned by itself
        place = (node.node_id, node.starts, *key)
        start = max(self._compared.get(place, 0), log.log_start_offset)
        end = min(log.high_watermark, log.log_end_offset)
        if start >= end:
            return False
        if node.has_damage:
            return False  # the judge compares its files at the end
        segment = log.segments.floor(start) or log.segments.active
        is_more, expected = False, segment.base_offset
        for _, header, batch in scan_batches(segment.file, 0, segment.size_bytes, COMPARED_BYTES):
            if header.base_offset != expected:
                self._violated(
                    "hole in a log",
                    f"{hosted} on {node.node_id}: {header.base_offset}, not {expected}",
                )
            expected = header.last_offset + 1
            if header.base_offset < start:
                continue
            if header.last_offset >= end:
                break
            digest = zlib.crc32(batch)
            at = (*key, header.base_offset)
            if self._batches.setdefault(at, digest) != digest:
                self._violated(
                    "replicas differ", f"{hosted} at {header.base_offset} on {node.node_id}"
                )
            self._compared[place] = header.last_offset + 1
            is_more = True
        following = log.segments.after(segment)
        if not is_more and following is not None and expected < end:
            if following.base_offset != expected:
                self._violated(
                    "hole in a log",
                    f"{hosted} on {node.node_id}: {following.base_offset}, not {expected}",
                )
            self._compared[place] = following.base_offset
            is_more = True
        return is_more


def unusable(node: VirtualNode) -> set[tuple[str, int]]:
    """Return the replicas that the process of a node could not open."""
    roles = getattr(node.broker, "_roles", None)
    return set() if roles is None else roles._unusable


def _has_sound_disk(node: VirtualNode) -> bool:
    return node.loop is not None and node.loop.slowness == 1.0 and not node.disk.is_failing


def controls(node: VirtualNode) -> bool:
    group = getattr(node.broker, "metadata_group", None)
    return group is not None and group.is_leader


def _hosted(node: VirtualNode) -> list[Any]:
    replicas = getattr(node.broker, "replicas", None)
    return [] if replicas is None else list(replicas._by_name.values())
