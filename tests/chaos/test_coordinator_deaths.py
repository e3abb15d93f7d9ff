"""Test the death of a transaction coordinator at a named moment of an abandoned transaction.

A raw client sends each request once and repeats no request. The broker that reaches the fault point
kills itself with -9. Afterwards a decided transaction is finished, in the same way in all
partitions, and an undecided one is aborted at its timeout. No transaction stays open, and readers
of committed data come to the end of the log. The coordinator epochs in the markers show which
markers were sent before the death, and so that the coordinator died at the right moment.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pytest

from oncelog.client.admin import Admin
from oncelog.coordinator.transactions import states as fault_points
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.wire.control_record import ControlType, decode_marker
from oncelog.wire.errors import error_for
from oncelog.wire.messages import control
from oncelog.wire.record_batch import CONTROL_BIT, decode_header

from ..interop.node_that_dies import arm, disarm, has_died, program
from ..interop.readers import WITH_LIBRARIES, read_to_end
from ..interop.recorded.requests import DESCRIBE_TRANSACTIONS, LONG_MS, TransactionalRequests
from .replica_files import assert_replicas_equal, batches

pytestmark = WITH_LIBRARIES
TOPIC, PARTITIONS = "unattended", 3
TIMEOUT_MS, SCAN_MS = 2_000, 1_000  # of undecided transactions; the scan is the local default
BOUND_S = (TIMEOUT_MS + 2 * SCAN_MS) / 1_000  # by then everything is decided, whatever happened
BUSY_MACHINE_S = 2.0  # for a machine that is busy with other things
TIMEOUT_S = 30.0
ADDED, DATA, ENDED = "added", "data", "ended"  # client's progress before the death
DECIDED, UNDECIDED, NEVER = "decided", "undecided", "never began"
BEFORE_MARKER, AFTER_MARKER = "partition.before-marker", "partition.after-marker"


class Moment(NamedTuple):
    """A moment of a transaction at which its coordinator is killed.

    `during`: the client's last request. sent: the minimum and maximum number of markers that the
    coordinator sent before its death.
    """

    fault_point: str
    during: str
    outcome: str
    sent: tuple[int, int] | None = None


MOMENTS = (
    Moment(fault_points.BEFORE_ONGOING, ADDED, NEVER, (0, 0)),
    Moment(fault_points.AFTER_ONGOING, ADDED, UNDECIDED, (0, 0)),
    Moment(fault_points.BEFORE_PREPARE, ENDED, UNDECIDED, (0, 0)),
    Moment(fault_points.AFTER_PREPARE, ENDED, DECIDED, (0, 0)),
    Moment(fault_points.AFTER_SOME_MARKERS, ENDED, DECIDED, (1, PARTITIONS)),
    Moment(fault_points.AFTER_ALL_MARKERS, ENDED, DECIDED, (PARTITIONS, PARTITIONS)),
    Moment(fault_points.AFTER_COMPLETE, ENDED, DECIDED, (PARTITIONS, PARTITIONS)),
    Moment(BEFORE_MARKER, ENDED, DECIDED),
    Moment(AFTER_MARKER, ENDED, DECIDED),
)


class Marker(NamedTuple):
    """A transaction marker in the log of a partition."""

    partition: int
    offset: int
    is_commit: bool
    coordinator_epoch: int


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": SCAN_MS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeProcess, "program", program)
        with Cluster(nodes=3, config=settings) as running:
            running.ask(
                lambda admin: admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            )
            running.wait_for_isr(TOPIC, 3)
            yield running
            for node in running.node_ids:
                running.kill(node)
            nodes = [running.data / f"node-{node}" for node in running.node_ids]
            assert assert_replicas_equal(nodes, TOPIC) > 0


class Unattended:
    """A client that commits one transaction, and then sends each request of a second one once.

    version: the version of its transactions (transaction.version). timeout_ms: the timeout of the
    second transaction.
    """

    def __init__(self, cluster: Cluster, name: str, version: int, timeout_ms: int) -> None:
        entries = cluster.file.nodes
        self._requests = TransactionalRequests({e.node_id: (e.host, e.port) for e in entries})
        self.name, self.version = name, version
        self._begin_session(LONG_MS)
        for send in self._steps(ENDED, is_commit=True, mark=self.mark("before")):
            self._requests.insist(send)
        self._begin_session(timeout_ms)  # the end of that one is complete, and durable as such

    def _begin_session(self, timeout_ms: int) -> None:
        answer = self._requests.insist(
            lambda: self._requests.init(self.name, 5, timeout_ms=timeout_ms)
        )
        self.identity = answer.producer_id, answer.producer_epoch

    def mark(self, which: str) -> bytes:
        """Return the record value of one transaction, the first ("before") or second ("at it")."""
        return f"{self.name} {which}".encode()

    def go(self, last: str, *, is_commit: bool) -> None:
        """Send the second transaction's requests up to and including `last`, once each."""
        for send in self._steps(last, is_commit=is_commit, mark=self.mark("at it")):
            send()

    def close(self) -> None:
        self._requests.close()

    def _steps(self, last: str, *, is_commit: bool, mark: bytes) -> list[Callable[[], Any]]:
        requests = self._requests
        places = [(TOPIC, index) for index in range(PARTITIONS)]
        steps: list[Callable[[], Any]] = []
        if self.version == 1:
            steps.append(lambda: requests.add_partitions(self.name, 3, self.identity, *places))
            if last == ADDED:
                return steps
        for place in places:
            steps.append(partial(self._produce, place, mark))
        if last == ADDED:
            return steps[:1]
        return [*steps, lambda: self._end(is_commit)]

    def _produce(self, place: tuple[str, int], mark: bytes) -> Any:
        version = 11 if self.version == 1 else 12
        return self._requests.produce(self.name, version, self.identity, place, 0, mark)

    def _end(self, is_commit: bool) -> Any:
        version = 3 if self.version == 1 else 5
        return self._requests.end(self.name, version, self.identity, is_commit)


def judge(cluster: Cluster, moment: Moment, *, version: int, is_commit: bool) -> None:
    """Run one transaction until its coordinator is killed at `moment`, and check the outcome."""
    name = f"{moment.fault_point} V{version} {is_commit} {time.time_ns()}"
    timeout_ms = TIMEOUT_MS if moment.outcome == UNDECIDED else LONG_MS
    try:
        with closing(Unattended(cluster, name, version, timeout_ms)) as client:
            _judge(cluster, moment, client, is_commit=is_commit)
    finally:
        disarm(cluster.data)
        cluster.start_all([s.node_id for s in cluster.status() if s.state == "down"])
        cluster.wait_for_isr(TOPIC, 3)


def _judge(cluster: Cluster, moment: Moment, client: Unattended, *, is_commit: bool) -> None:
    name = client.name
    before = {marker.partition: marker for marker in markers(cluster, client.identity[0])}
    assert len(before) == PARTITIONS and all(marker.is_commit for marker in before.values())
    arm(cluster.data, moment.fault_point)
    client.go(moment.during, is_commit=is_commit)
    late = time.monotonic() + TIMEOUT_S
    until(lambda: has_died(cluster.data), late, f"nobody came to {moment.fault_point}")

    deadline = time.monotonic() + BOUND_S + BUSY_MACHINE_S
    begins = moment.outcome != NEVER
    commits = moment.outcome == DECIDED and is_commit
    wanted = ("CompleteCommit" if commits else "CompleteAbort") if begins else "Empty"
    until(lambda: described(cluster, name) == wanted, deadline, f"{name}: not {wanted}")
    until(lambda: not open_ends(cluster), deadline, f"{name}: open after {BOUND_S} s")

    written = [
        marker
        for marker in markers(cluster, client.identity[0])
        if marker.offset > before[marker.partition].offset
    ]
    assert {marker.is_commit for marker in written} == ({commits} if begins else set())
    if moment.during == ENDED:
        assert {marker.partition for marker in written} == set(range(PARTITIONS))
    if moment.sent is not None:
        term = before[0].coordinator_epoch
        of_the_dead = {m.partition for m in written if m.coordinator_epoch == term}
        assert moment.sent[0] <= len(of_the_dead) <= moment.sent[1], written
    seen = read_to_end(cluster.bootstrap, TOPIC, PARTITIONS)
    everywhere = list(range(PARTITIONS))
    assert sorted(p for p, value in seen if value == client.mark("before")) == everywhere
    assert sorted(p for p, value in seen if value == client.mark("at it")) == everywhere * commits


def described(cluster: Cluster, name: str) -> str:
    """Return the state of a transactional id as described by its coordinator."""

    async def ask(admin: Admin) -> str:
        coordinator = await admin.view.broker(await admin.find_coordinator(name, 1))
        body = control.encode_request(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [name]})
        frame = await coordinator.send(DESCRIBE_TRANSACTIONS, 0, [body])
        answer = control.decode_response(DESCRIBE_TRANSACTIONS, 0, frame)
        (found,) = answer.transaction_states
        if found.error_code:
            raise error_for(found.error_code)
        return found.transaction_state

    return cluster.ask(lambda admin: admin.view.retrying(lambda: ask(admin), timeout_ms=20_000))


def open_ends(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """Return (last stable offset, end offset) of each partition in which the two differ."""
    places = {(TOPIC, index): -1 for index in range(PARTITIONS)}
    stable = cluster.ask(lambda admin: admin.list_offsets(places, read_committed=True))
    ends = cluster.ask(lambda admin: admin.list_offsets(places))
    return {p[1]: (stable[p], ends[p]) for p in places if stable[p] != ends[p]}


def markers(cluster: Cluster, producer_id: int) -> list[Marker]:
    """Return the producer's markers, from the logs of the partitions' leaders."""
    found = []
    for index in range(PARTITIONS):
        folder = cluster.data / f"node-{cluster.leader(TOPIC, index)}" / f"{TOPIC}-{index}"
        for offset, batch in batches(folder).items():
            header = decode_header(batch)
            if header.producer_id == producer_id and header.attributes & CONTROL_BIT:
                kind, epoch = decode_marker(batch)
                found.append(Marker(index, offset, kind is ControlType.COMMIT, epoch))
    return found


def until(holds: Callable[[], bool], deadline: float, what: str) -> None:
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _name(value: object) -> str:
    return value.fault_point if isinstance(value, Moment) else str(value)


@pytest.mark.in_turn
@pytest.mark.parametrize("moment", MOMENTS, ids=_name)
def test_transactions_of_a_killed_coordinator_are_finished_if_decided_and_aborted_if_not(
    cluster: Cluster, moment: Moment
) -> None:
    judge(cluster, moment, version=2, is_commit=True)


@pytest.mark.chaos
@pytest.mark.parametrize("version, is_commit", [(1, True), (1, False), (2, False)])
@pytest.mark.parametrize("moment", MOMENTS, ids=_name)
def test_v1_transactions_and_v2_aborts_of_a_killed_coordinator_end_as_decided_or_aborted(
    cluster: Cluster, moment: Moment, version: int, is_commit: bool
) -> None:
    judge(cluster, moment, version=version, is_commit=is_commit)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "moment",
    [MOMENTS[4], *(pytest.param(m, marks=pytest.mark.chaos) for m in MOMENTS[3:6:2])],
    ids=_name,
)
def test_abort_decided_by_a_killed_coordinator_is_finished_by_its_successor_for_a_v1_client(
    cluster: Cluster, moment: Moment
) -> None:
    judge(cluster, moment, version=1, is_commit=False)
