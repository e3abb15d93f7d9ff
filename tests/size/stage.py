"""The environment of a size case, with a fresh cluster, a probe and an outcome.

A case is a function of a `Stage`. It prepares its needs, and runs the heavy operation inside `with
stage.watched("what"):`. Only this operation is judged.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oncelog import Cluster
from oncelog.deploy.inspect.cluster_watch import ClusterWatch, WatchResult
from oncelog.deploy.inspect.probe import LIMIT_MS
from oncelog.wire.errors import KafkaError
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from .connection import CREATE_TOPICS, LIST_OFFSETS, PRODUCE, Address, Connection

SETTLE_S, SETTLE_SHORT_S = 2.0, 0.5  # consequences of a heavy case may be a session timeout late
ISR_TIMEOUT_S, PRODUCE_TIMEOUT_S = 120.0, 30.0
SESSION_MS = 1_500
SPARE_BYTES = 10_000_000_000


class Skipped(Exception):
    """Raised if a case cannot run on this machine. The text has the reason."""


class BatchRefused(Exception):
    """Raised if a Produce is answered with an error."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a case with its duration, notes and exceeded limits."""

    case: str
    done: str = ""
    skipped: str = ""
    seconds: float = 0.0
    seen: WatchResult | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return (self.seen is not None or bool(self.skipped)) and not self.problems


class Stage:
    """One case on one cluster. `is_short` selects its smaller sizes."""

    def __init__(self, case: str, cluster: Cluster, *, is_short: bool) -> None:
        self.cluster, self.is_short = cluster, is_short
        self._settle_s = SETTLE_SHORT_S if is_short else SETTLE_S
        self.outcome = Outcome(case)
        self.watch: ClusterWatch | None = None

    def size(self, full: int, short: int) -> int:
        return short if self.is_short else full

    @contextmanager
    def watched(self, done: str, *, settle_s: float = 0.0) -> Iterator[ClusterWatch]:
        """Run the probe during the block, and for `settle_s` or a default time after it."""
        self.outcome.done = done
        with ClusterWatch(self.cluster) as self.watch:
            began = time.monotonic()
            try:
                yield self.watch
            except Exception as problem:
                self.outcome.problems.append(f"{type(problem).__name__}: {problem}")
            self.outcome.seconds = time.monotonic() - began
            time.sleep(max(settle_s, self._settle_s))
            self.outcome.seen = self.watch.stop()

    def note(self, words: str) -> None:
        self.outcome.notes.append(words)

    def require(self, holds: bool, words: str) -> None:
        """Add `words` to the problems of the outcome, unless `holds` is true."""
        if not holds:
            self.outcome.problems.append(words)

    # -- helpers of the cases

    def require_room(self, total_bytes: int) -> None:
        """Raise Skipped if the disk has too little free space for this number of bytes."""
        free_bytes = shutil.disk_usage(self.cluster.data).free
        if free_bytes < total_bytes + SPARE_BYTES:
            raise Skipped(
                f"{total_bytes / 1e9:g} GB and {SPARE_BYTES / 1e9:g} to spare are wanted at "
                f"{self.cluster.data}; {free_bytes / 1e9:.0f} GB are free"
            )

    def create(self, topic: str, partitions: int, rf: int = 3, **configs: Any) -> None:
        """Create a topic, and wait until all leaders answer. `_` in a config name means a dot.

        Retention does not remove the records, most of which have timestamps of 1970.
        """
        configs = {"retention.ms": -1, **configs}
        texts = [{"name": k.replace("_", "."), "value": str(v)} for k, v in configs.items()]
        wanted = {
            "name": topic, "num_partitions": partitions, "replication_factor": rf,
            "assignments": [], "configs": texts,
        }  # fmt: skip
        connection = Connection(self.address(self.cluster.controller()))
        answer = connection.ask(CREATE_TOPICS, 5, {"topics": [wanted], "timeout": 60_000})
        connection.close()
        if answer.topics[0].error_code:
            raise RuntimeError(f"{topic} was not created: {answer.topics[0].error_message}")
        self.wait_in_sync(topic, partitions, rf)
        for node_id, led in self.leaders(topic).items():
            serves = partial(self._serves, node_id, topic, led)
            self.wait(f"all partitions of {topic} serve", serves, ISR_TIMEOUT_S, every_s=0.25)

    def _serves(self, node_id: int, topic: str, led: list[int]) -> bool:
        """Return whether a node answers ListOffsets as the leader of all these partitions."""
        ends = [{"partition_index": p, "timestamp": -1} for p in led]
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": ends}]}
        with contextlib.closing(Connection(self.address(node_id))) as connection:
            answer = connection.ask(LIST_OFFSETS, 2, {**asked, "isolation_level": 0})
        return all(p.error_code == 0 for p in answer.topics[0].partitions)

    def wait_in_sync(self, topic: str, partitions: int, rf: int = 3) -> None:
        """Wait until each partition has a leader and a full ISR.

        The topic is described in few large requests.
        """

        def holds() -> bool:
            try:
                found = self.cluster.ask(lambda admin: admin.describe_topics([topic]))
            except KafkaError:
                return False
            return len(found) == partitions and all(
                p.leader >= 0 and len(p.isr) == rf for p in found
            )

        self.wait(f"all replicas of {topic} in sync", holds, ISR_TIMEOUT_S, every_s=0.25)

    def address(self, node_id: int) -> Address:
        entry = self.cluster.file.entry(node_id)
        return entry.host, entry.port

    def leaders(self, topic: str) -> dict[int, list[int]]:
        """Return the partitions that each node leads."""
        found: dict[int, list[int]] = {}
        for p in self.cluster.ask(lambda admin: admin.describe_topics([topic])):
            found.setdefault(p.leader, []).append(p.partition)
        return found

    def produce_everywhere(
        self, topic: str, batch: bytes, *, times: int = 1, pipelined: int = 8
    ) -> None:
        """Append the same batch `times` times to each partition, with acks=all.

        Unacknowledged batches are sent again, as a client would do, and may be in the log twice.
        """
        left = {p: times for led in self.leaders(topic).values() for p in led}
        deadline = time.monotonic() + PRODUCE_TIMEOUT_S
        while left:
            send = partial(self._produce_to, topic, batch, left, pipelined)
            count, leaders = sum(left.values()), self.leaders(topic)
            leaders.pop(-1, None)  # of those that have no leader now
            with ThreadPoolExecutor(len(self.cluster.node_ids)) as executor:
                list(executor.map(send, leaders.keys(), leaders.values()))
            left = {p: times for p, times in left.items() if times}
            if sum(left.values()) < count:
                deadline = time.monotonic() + PRODUCE_TIMEOUT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has taken no batch for {PRODUCE_TIMEOUT_S:.0f} s")

    def _produce_to(
        self,
        topic: str,
        batch: bytes,
        left: dict[int, int],
        pipelined: int,
        node_id: int,
        led: list[int],
    ) -> None:
        with contextlib.suppress(OSError, BatchRefused):
            connection = Connection(self.address(node_id))
            with contextlib.closing(connection):
                while turns := [p for p in led if left.get(p)]:
                    for start in range(0, len(turns), pipelined):
                        some = turns[start : start + pipelined]
                        for partition in some:
                            connection.send(PRODUCE, 9, produce_body(topic, partition, batch))
                        for partition in some:
                            require_appended(connection, partition)
                            left[partition] -= 1

    def wait(self, what: str, holds: Callable[[], bool], timeout_s: float = 60.0,
             every_s: float = 0.05) -> None:  # fmt: skip
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not in {timeout_s:.0f} s")
            time.sleep(every_s)


def produce_body(topic: str, partition: int, batch: bytes, *, acks: int = -1) -> bytes:
    """Return the body of a Produce request, version 9, with one batch."""
    wanted = ProduceTopic(topic, None, [ProducePartition(partition, batch)])
    return b"".join(produce.encode_request(ProduceRequest(None, acks, 60_000, [wanted]), 9))


def require_appended(connection: Connection, partition: int) -> int:
    """Receive the answer to one Produce, and return its offset. Raise BatchRefused on error."""
    answer = produce.decode_response(connection.receive(PRODUCE, 9), 9)
    (appended,) = answer.topics[0].partitions
    if appended.error_code:
        raise BatchRefused(f"partition {partition} took no batch: error {appended.error_code}")
    return appended.base_offset


def judge(outcome: Outcome, *, limit_ms: float = LIMIT_MS, less_wait: bool = False) -> Outcome:
    """Add late answers and fenced brokers to the problems of an outcome.

    less_wait: for a machine that also does other work. Waits for a processor are subtracted, and a
    node that had no processor for half of its session timeout may be fenced.
    """
    if outcome.seen is None:
        return outcome
    for node in outcome.seen.probe.nodes:
        late_ms = node.max_less_wait_ms if less_wait else node.max_ms
        if late_ms > limit_ms:
            outcome.problems.append(f"node {node.node} answered {late_ms:,.0f} ms late")
        fences = outcome.seen.fences.get(node.node, 0)
        if fences and not (less_wait and node.waited_ms > SESSION_MS / 2):
            outcome.problems.append(f"node {node.node} lived and was fenced {fences} times")
    return outcome


Case = Callable[[Stage], None]


def names_of(cases: Sequence[Case]) -> dict[str, Case]:
    """Return the cases by their names on the command line."""
    return {case.__name__.replace("_", "-"): case for case in cases}
