"""A small model of Kafka with legal behaviour only, and clients that record their results.

A seed determines everything, such as the next actor, the targets of sends, lost answers, aborts,
and takeovers of transactional ids. The model's brokers make no mistakes, but its clients do.
"""

import random
from collections.abc import Generator
from dataclasses import dataclass, field

from oncelog.proof.judge.history.recorder import Begun, Recorder
from oncelog.proof.judge.history.schema import NONE, Isolation, Marker, OpOutcome

from .model_consumer_group import ModelGroup, shared_reader

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMITTED = Isolation.READ_COMMITTED
Steps = Generator[None, None, None]


@dataclass(slots=True)
class Transaction:
    """The coordinator's state of a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str = "open"  # commit, abort
    unmarked: dict[str, int] = field(default_factory=dict)  # partition -> first offset
    offsets: dict[tuple[str, str], int] = field(default_factory=dict)
    is_done: bool = False


@dataclass(slots=True)
class Entry:
    """A log entry, which is a batch of one record, or a marker."""

    value: int = NONE
    producer_id: int = NONE
    epoch: int = NONE
    sequence: int = NONE
    transaction: Transaction | None = None
    marker: Marker = Marker.NONE


@dataclass(slots=True)
class Owner:
    """The producer id and epoch that currently own a transactional id."""

    producer_id: int
    epoch: int
    transaction: Transaction | None = None


class ModelCluster:
    """The brokers, the clock and the recorder of the model."""

    def __init__(self, seed: int, *, steps: int = 1_500) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 1_000
        self.recorder = Recorder.in_memory(clock_ns=lambda: self.now_ns)
        self.logs: dict[str, list[Entry]] = {f"{t}/{p}": [] for t in ("in", "out") for p in (0, 1)}
        self.owners: dict[str, Owner] = {}
        self.committed: dict[tuple[str, str], int] = {}
        self.decisions: list[tuple[str, int, int, str]] = []
        self.sequences: dict[tuple[int, int, str], int] = {}
        self.ids = iter(range(1_000, 100_000))
        self.generation, self.members = 0, list[int]()  # of the group of plain readers
        self.shared = ModelGroup(list(self.logs))
        clients = [writer(self, f"writer-{i % 3}") for i in range(4)]
        clients += [plain_producer(self), plain_producer(self), consumer(self), consumer(self)]
        clients += [copier(self, "copier-0", "in/0"), copier(self, "copier-1", "in/1")]
        clients += [group_reader(self), group_reader(self)]
        clients += [shared_reader(self), shared_reader(self), shared_reader(self)]
        for _ in range(steps):
            self.step()
            next(self.rng.choice(clients), None)
            if self.rng.random() < 0.3:
                self.write_a_marker()
        self.finish()

    def step(self) -> None:
        self.now_ns += self.rng.randrange(1, 2_000)

    # --- the servers

    def initialize(self, transactional_id: str) -> Owner:
        known = self.owners.get(transactional_id)
        if known is None:
            owner = Owner(next(self.ids), 0)
        else:
            if known.transaction is not None and known.transaction.state == "open":
                self.decide(known.transaction, "abort")
            owner = Owner(known.producer_id, known.epoch + 1, known.transaction)
        self.owners[transactional_id] = owner
        return owner

    def is_current(self, transactional_id: str, owner: Owner) -> bool:
        return self.owners[transactional_id] is owner

    def append(
        self, partition: str, value: int, producer_id: int, epoch: int,
        transaction: Transaction | None = None,
    ) -> int:  # fmt: skip
        log = self.logs[partition]
        key = (producer_id, epoch, partition)
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + 1
        log.append(Entry(value, producer_id, epoch, sequence, transaction))
        if transaction is not None:
            transaction.unmarked.setdefault(partition, len(log) - 1)
        return len(log) - 1

    def decide(self, transaction: Transaction, state: str) -> None:
        transaction.state = state
        owner = self.owners[transaction.transactional_id]
        owner.epoch = max(owner.epoch, transaction.epoch + 1)  # transactions V2
        word = "Commit" if state == "commit" else "Abort"
        self.decided(transaction, f"Prepare{word}")
        if state == "commit":
            for at, offset in transaction.offsets.items():
                self.committed[at] = offset
        if not transaction.unmarked:
            self.complete(transaction)

    def decided(self, transaction: Transaction, state: str) -> None:
        t = transaction
        self.decisions.append((t.transactional_id, t.producer_id, t.epoch + 1, state))

    def complete(self, transaction: Transaction) -> None:
        transaction.is_done = True
        word = "Commit" if transaction.state == "commit" else "Abort"
        self.decided(transaction, f"Complete{word}")

    def write_a_marker(self) -> bool:
        owed = [
            (o.transaction, p)
            for o in self.owners.values()
            if o.transaction and o.transaction.state != "open"
            for p in o.transaction.unmarked
        ]
        if not owed:
            return False
        transaction, partition = self.rng.choice(owed)
        kind = Marker.COMMIT if transaction.state == "commit" else Marker.ABORT
        marker = Entry(
            NONE, transaction.producer_id, transaction.epoch + 1, NONE, transaction, kind
        )
        self.logs[partition].append(marker)
        del transaction.unmarked[partition]
        if not transaction.unmarked:
            self.complete(transaction)
        return True

    def stable(self, partition: str) -> int:
        first = [
            o.transaction.unmarked[partition]
            for o in self.owners.values()
            if o.transaction and partition in o.transaction.unmarked
        ]
        return min([len(self.logs[partition]), *first])

    def read(
        self, partition: str, start: int, most: int = 10**9
    ) -> tuple[list[tuple[int, int]], int]:
        found: list[tuple[int, int]] = []
        at, end = start, self.stable(partition)
        while at < end and len(found) < most:
            entry = self.logs[partition][at]
            is_visible = entry.transaction is None or entry.transaction.state == "commit"
            if entry.marker is Marker.NONE and is_visible:
                found.append((at, entry.value))
            at += 1
        return found, at

    def may_begin(self, owner: Owner) -> bool:
        return owner.transaction is None or owner.transaction.is_done

    def rebalance(self) -> None:
        self.generation += 1

    def owned(self, process: int) -> list[str]:
        """Return the partitions that a member of the group `readers` owns in this generation."""
        place = self.members.index(process)
        return sorted(self.logs)[place :: len(self.members)]

    # --- the end

    def finish(self) -> None:
        for owner in self.owners.values():
            if owner.transaction is not None and owner.transaction.state == "open":
                self.decide(owner.transaction, "abort")
        while self.write_a_marker():
            self.step()
        self.step()
        add = self.recorder.add
        for partition, log in self.logs.items():
            for offset, value in self.read(partition, 0)[0]:
                add("scan", COMMITTED, partition, offset, value, self.now_ns)
            end = len(log)
            for replica in (NONE, 1, 2, 3):
                add("ends", replica, partition, 0, end, end, end, 1, 5, 3, 3, 0, self.now_ns)
                for offset, entry in enumerate(log):
                    bits = TRANSACTIONAL if entry.transaction else 0
                    bits |= CONTROL if entry.marker is not Marker.NONE else 0
                    crc = hash((entry.value, entry.epoch, offset)) & 0xFFFFFFFF
                    add("batches", replica, partition, offset, offset, 5, crc, 70, bits,
                        entry.producer_id, entry.epoch, entry.sequence, entry.sequence, 1,
                        1_700_000_000_000, entry.marker,
                        3 if entry.marker is not Marker.NONE else NONE)  # fmt: skip
        for (group, partition), offset in self.committed.items():
            add("committed", group, partition, offset, self.now_ns)
        for transactional_id, producer_id, epoch, state in self.decisions:
            add(
                "decisions", transactional_id, producer_id, epoch, state, 60_000, 1_000, self.now_ns
            )
        for kind in ("produce", "commit", "consume"):
            add("probes", kind, 1, self.now_ns, self.now_ns + 5, OpOutcome.OK, None)


def initialized(
    cluster: ModelCluster, process: int, transactional_id: str
) -> Generator[None, None, Owner]:
    handle = cluster.recorder.initialize_invoked(process, transactional_id)
    yield
    owner = cluster.initialize(transactional_id)
    producer_id, epoch = owner.producer_id, owner.epoch
    yield
    cluster.recorder.initialize_ended(handle, OpOutcome.OK, producer_id=producer_id, epoch=epoch)
    return owner


def send(
    cluster: ModelCluster,
    process: int,
    partition: str,
    owner: Owner,
    begun: Begun,
    running: Transaction,
) -> Generator[None, None, int | None]:
    """Send a record, and return its value, or None if the producer was fenced."""
    value = cluster.recorder.new_value()
    handle = cluster.recorder.send_invoked(process, partition, value, begun)
    yield
    if not cluster.is_current(running.transactional_id, owner) or running.state != "open":
        cluster.recorder.send_ended(handle, OpOutcome.FAIL, error="PRODUCER_FENCED")
        return None
    offset = cluster.append(partition, value, owner.producer_id, running.epoch, running)
    yield
    if cluster.rng.random() < 0.9:
        cluster.recorder.send_ended(handle, OpOutcome.OK, offset=offset)
    return value


def ended(
    cluster: ModelCluster, owner: Owner, begun: Begun, running: Transaction
) -> Generator[None, None, OpOutcome]:
    """Commit or abort the transaction, sometimes with a lost answer, and return the outcome."""
    rng, recorder = cluster.rng, cluster.recorder
    if rng.random() < 0.2:
        yield
        if cluster.is_current(running.transactional_id, owner) and running.state == "open":
            cluster.decide(running, "abort")
        yield
        recorder.transaction_ended(begun, OpOutcome.FAIL, "aborted on purpose")
        return OpOutcome.FAIL
    recorder.commit_invoked(begun)
    yield
    is_lost = rng.random() < 0.1
    if is_lost and rng.random() < 0.5:  # the request
        recorder.transaction_ended(begun, OpOutcome.INFO, "REQUEST_TIMED_OUT")
        return OpOutcome.INFO
    if not cluster.is_current(running.transactional_id, owner) or running.state != "open":
        recorder.transaction_ended(begun, OpOutcome.FAIL, "PRODUCER_FENCED")
        return OpOutcome.FAIL
    cluster.decide(running, "commit")
    yield
    outcome = OpOutcome.INFO if is_lost else OpOutcome.OK
    recorder.transaction_ended(begun, outcome, "REQUEST_TIMED_OUT" if is_lost else None)
    return outcome


def begin(
    cluster: ModelCluster, owner: Owner, transactional_id: str
) -> Generator[None, None, Transaction]:
    while not cluster.may_begin(owner):
        yield
    running = Transaction(transactional_id, owner.producer_id, owner.epoch)
    if cluster.is_current(transactional_id, owner):
        owner.transaction = running
    else:
        running.state = "fenced"
    return running


def writer(cluster: ModelCluster, transactional_id: str) -> Steps:
    """Run a producer that writes and reads in transactions over several partitions.

    Several writers share a transactional id.
    """
    rng, recorder = cluster.rng, cluster.recorder
    while True:
        process = recorder.new_process()
        owner = yield from initialized(cluster, process, transactional_id)
        positions, is_alive, session = dict.fromkeys(cluster.logs, 0), True, 0
        while is_alive:
            running = yield from begin(cluster, owner, transactional_id)
            begun = recorder.begin(process, transactional_id, owner.producer_id, running.epoch)
            before = dict(positions)
            for _ in range(rng.randrange(1, 5)):
                if rng.random() < 0.3:
                    call, handle = recorder.poll_invoked(process, begun)
                    yield
                    partition = rng.choice(list(cluster.logs))
                    found, positions[partition] = cluster.read(partition, positions[partition], 5)
                    returned_ns = recorder.poll_returned(handle)
                    for offset, value in found:
                        recorder.polled(process, call, partition, offset, value, session=session,
                                        returned_ns=returned_ns, transaction=begun)  # fmt: skip
                    continue
                partition = rng.choice(list(cluster.logs))
                sent = yield from send(cluster, process, partition, owner, begun, running)
                if sent is None:
                    is_alive = False
                    break
                yield
            if not is_alive:
                recorder.transaction_ended(begun, OpOutcome.FAIL, "PRODUCER_FENCED")
                break
            outcome = yield from ended(cluster, owner, begun, running)
            if outcome is not OpOutcome.OK:
                positions = before
            is_alive = outcome is not OpOutcome.INFO and cluster.is_current(transactional_id, owner)


def plain_producer(cluster: ModelCluster) -> Steps:
    """Run a producer that sends idempotent records, some of them without an answer."""
    rng, recorder = cluster.rng, cluster.recorder
    process, producer_id = recorder.new_process(), next(cluster.ids)
    while True:
        partition, value = rng.choice(list(cluster.logs)), recorder.new_value()
        handle = recorder.send_invoked(process, partition, value)
        yield
        chance = rng.random()
        if chance < 0.05:
            recorder.send_ended(handle, OpOutcome.FAIL, error="MESSAGE_TOO_LARGE")
            continue
        if chance < 0.1:
            continue  # the request was lost
        offset = cluster.append(partition, value, producer_id, 0)
        yield
        if chance > 0.2:
            recorder.send_ended(handle, OpOutcome.OK, offset=offset)


def consumer(cluster: ModelCluster) -> Steps:
    """Run a consumer of all partitions, which sometimes seeks in a new session."""
    rng, recorder = cluster.rng, cluster.recorder
    process, session = recorder.new_process(), 0
    positions = dict.fromkeys(cluster.logs, 0)
    while True:
        call, handle = recorder.poll_invoked(process)
        yield
        got = []
        for partition in rng.sample(list(cluster.logs), 2):
            found, positions[partition] = cluster.read(partition, positions[partition], 4)
            got += [(partition, offset, value) for offset, value in found]
        returned_ns = recorder.poll_returned(handle)
        for partition, offset, value in got:
            recorder.polled(process, call, partition, offset, value, session=session,
                            returned_ns=returned_ns)  # fmt: skip
        if rng.random() < 0.03:
            session += 1
            positions = {p: rng.randrange(0, len(log) + 1) for p, log in cluster.logs.items()}
        yield


def group_reader(cluster: ModelCluster) -> Steps:
    """Run a group member that commits offsets, with lost answers and delayed requests."""
    rng, recorder, group = cluster.rng, cluster.recorder, "readers"
    while True:
        process = recorder.new_process()
        cluster.members.append(process)
        cluster.rebalance()
        generation = late_in = NONE
        mine = list[str]()
        late: tuple[str, int] | None = None
        for _ in range(rng.randrange(5, 40)):
            if generation != cluster.generation:
                generation = cluster.generation
                mine = cluster.owned(process)
                for partition in mine:
                    row = process, group, generation, partition, f"member-{process}"
                    recorder.add("ownerships", *row, cluster.now_ns)
            if late is not None and late_in == cluster.generation and rng.random() < 0.5:
                cluster.committed[group, late[0]], late = late[1], None
            if not mine:
                yield
                continue
            partition = rng.choice(mine)
            offset = cluster.committed.get((group, partition), 0) + rng.randrange(1, 4)
            row = (process, group, generation, partition, offset)
            handle = recorder.group_commit_invoked(*row)
            yield
            chance = rng.random()
            if chance < 0.1:  # the outcome is unknown, and the write may still come
                late, late_in = (partition, offset), generation
                continue
            if generation != cluster.generation:
                recorder.group_commit_ended(handle, OpOutcome.FAIL, 1, "IllegalGeneration")
                continue
            cluster.committed[group, partition] = offset
            yield
            if chance < 0.9:
                recorder.group_commit_ended(handle, OpOutcome.OK, 1)
        cluster.members.remove(process)
        cluster.rebalance()


def copier(cluster: ModelCluster, transactional_id: str, source: str) -> Steps:
    """Run a job that copies a partition in transactions, which commit the offsets of its inputs."""
    rng, recorder, group = cluster.rng, cluster.recorder, "copiers"
    while True:
        process = recorder.new_process()
        owner = yield from initialized(cluster, process, transactional_id)
        session, outcome = 0, OpOutcome.OK
        while outcome is not OpOutcome.INFO:
            running = yield from begin(cluster, owner, transactional_id)
            start = cluster.committed.get((group, source), 0)
            found, position = cluster.read(source, start, 3)
            if not found:
                yield
                continue
            begun = recorder.begin(process, transactional_id, owner.producer_id, running.epoch)
            call, handle = recorder.poll_invoked(process, begun)
            returned_ns = recorder.poll_returned(handle)
            for offset, value in found:
                recorder.polled(process, call, source, offset, value, session=session,
                                returned_ns=returned_ns, transaction=begun)  # fmt: skip
            for offset, _ in found:
                sent = yield from send(cluster, process, rng.choice(["out/0", "out/1"]), owner,
                                       begun, running)  # fmt: skip
                assert sent is not None
                recorder.add("derivations", sent, group, source, offset)
            recorder.add("offset_commits", begun.number, process, group, source, start, position,
                         cluster.now_ns, OpOutcome.OK)  # fmt: skip
            running.offsets[(group, source)] = position
            yield
            outcome = yield from ended(cluster, owner, begun, running)
