"""Run one seed of the deterministic simulation, from the start to the verdict.

The safety phase has clients, an administrator and faults, while the invariants are checked. Then
all faults end. In the liveness phase, within a virtual deadline, each node has to serve, each
replica to be in sync, each transaction to be decided, each record to be readable, and a commit and
a consume to work through each broker. At the end the cluster is stopped, and the judge reads the
history and the log files.
"""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from oncelog.client.consumer import ConsumerRecord
from oncelog.proof.chaos.load.bank import BankCheck
from oncelog.proof.chaos.load.payloads import value_of
from oncelog.proof.chaos.load.settings import BANK
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.logs.scan import COMPACTED, dump_logs, scan_topics
from oncelog.proof.judge.verdict import judge
from oncelog.wire.errors import KafkaError

from .conductor import Conductor
from .fault_schedule import draw, require_possible
from .invariants import Invariants
from .outcome import Fault, Outcome, Shape
from .topics import latest_values
from .topics.latest_values import LatestValues
from .topics.own_topic import OwnTopic, write
from .topics.passing_values import PassingValues
from .virtual_cluster import VirtualCluster
from .workload import (
    Workload,
    administer,
    administer_size,
    probe,
    settings_of,
    what_is_stuck,
    write_down_the_end,
)

Install = Callable[[], AbstractContextManager[object]]
HEALED_S = 60.0
DECIDED_S = 40.0
EXAMPLES_MAX = 3
REMOVALS_KEPT_S = (1.5, 4.0)
# The failure of all operations of a kind is a finding after so many, and so long a whole cluster.
TRIED_MIN, WHOLE_S_MIN = 60, 3.0
CPU = time.process_time


def shape_of(seed: int) -> Shape:
    """Return the shape of a seed's cluster.

    Some runs are short with busy clients, and others are long with quiet clients.
    """
    rng = random.Random(f"shape of {seed}")
    nodes = rng.choice([3, 3, 3, 3, 4, 5]) if seed % 8 else 3
    durable = rng.random() < 0.15
    if rng.random() < 0.6:
        return Shape(
            nodes=nodes, seconds=12.0, faults=rng.randint(6, 14), pace=2.0, durable=durable
        )
    return Shape(nodes=3, seconds=158.0, faults=rng.randint(4, 24), pace=64.0, durable=durable)


class _NotAlive(Exception):
    """Raised if the cluster does not recover in time after all faults have ended."""


def run(
    seed: int,
    *,
    shape: Shape | None = None,
    faults: Sequence[Fault] | None = None,
    install: Install | None = None,
    trace: list[str] | None = None,
    on_log: Callable[[str], object] | None = None,
) -> Outcome:
    """Run a seed (see run.run_seed). `trace` gets the trace as text, `on_log` the nodes' logs."""
    shape = shape or shape_of(seed)
    planned = list(draw(seed, shape) if faults is None else faults)
    require_possible(planned, shape)
    outcome = Outcome(seed=seed, shape=shape, faults=planned)
    begun_s = CPU()
    with VirtualCluster.made(seed, shape, on_log) as cluster:
        cluster.timeline.log = trace
        with install() if install is not None else contextlib.nullcontext():
            _Run(cluster, outcome, planned).carry_out()
        outcome.trace_hash = f"{cluster.timeline.trace % (1 << 64):016x}"
        outcome.virtual_s = cluster.timeline.now - 1_000.0
        outcome.events = cluster.timeline.events
    outcome.cpu_s = CPU() - begun_s
    return outcome


class _Run:
    """The run of one seed, with a method for each phase."""

    def __init__(self, cluster: VirtualCluster, outcome: Outcome, faults: list[Fault]) -> None:
        self.cluster, self.outcome, self.faults = cluster, outcome, faults
        self.recorder = Recorder.in_memory(clock_ns=lambda: cluster.timeline.now_ns)
        self.settings = settings_of(outcome.shape, outcome.seed)
        self.workload = Workload(cluster, self.recorder, self.settings)
        self.conductor = Conductor(
            cluster, self.recorder, self.workload.clients, self.workload.begin
        )
        self.invariants = Invariants(cluster, self.recorder)
        seed = outcome.seed
        kept_s = random.Random(f"removals of {seed}").choice(REMOVALS_KEPT_S)
        kept_s *= max(1.0, outcome.shape.pace / 16)
        self.own_topics: list[OwnTopic] = [LatestValues(seed, kept_s), PassingValues(seed)]
        self._is_complete = True
        self._whole_s = 0.0  # in the safety phase

    def carry_out(self) -> None:
        try:
            with self.invariants.watching():
                self.cluster.start()
                self.cluster.finish(self.workload.prepare(self.own_topics))
                self._safety()
                self._liveness()
                self.invariants.look_at_all()
            self._stop()
        except (_NotAlive, TimeoutError, RuntimeError) as problem:
            self._violated("not alive", str(problem))
            self._is_complete = False
        except KafkaError as problem:  # an error of a client's first or last steps is no violation
            self._violated("not alive", repr(problem))
            self._is_complete = False
        for name, words in (*self.invariants.found, *self.cluster.broken):
            self._violated(name, words)
        for words in self.workload.problems():
            self._violated("client failed", words)
        for words in self.cluster.failures():
            self._violated("unhandled", words)
        for number, spent_s, words in self.cluster.timeline.long_steps:
            if number in self.cluster.nodes:
                spent = f"{spent_s * 1_000:.0f} ms of the processor"
                self._violated("kept the loop", f"{words} on node {number}: {spent}")
        for node in self.cluster.nodes.values():
            for words in node.ends:
                self._violated("node ended", words)
        self._judge()

    def _say(self, words: str) -> None:
        if self.cluster.on_log is not None:
            self.cluster.on_log(f"{self.cluster.timeline.now - 1000:9.3f} - {words}")

    def _violated(self, name: str, words: str) -> None:
        self.outcome.names.add(name)
        self.outcome.violations.append(f"{name}: {words}")

    def _safety(self) -> None:
        cluster, shape = self.cluster, self.outcome.shape
        self.workload.start()
        rng = random.Random(cluster.random.getrandbits(64))
        admin = cluster.new_client()
        self._change_s = rng.choice([0.5, 1.5]) * max(1.0, shape.pace / 16)
        self._admin = admin.run(
            administer(cluster, lambda: self.workload.is_over, rng, self._change_s)
        )
        self._own = admin.run(
            write(cluster, self.own_topics, lambda: self.workload.is_over, rng, shape.pace)
        )
        for topic in self.own_topics:
            admin.run(topic.watch(cluster))
        if shape.size:
            admin.run(administer_size(cluster, shape.size))
        self.conductor.plan(self.faults)
        looked_s = cluster.timeline.now

        def look() -> bool:
            nonlocal looked_s
            before_s, looked_s = looked_s, cluster.timeline.now
            is_whole = self.conductor.is_whole() and len(cluster.serving) == len(cluster.nodes)
            if is_whole and not cluster.wires.has_cuts:
                self._whole_s += looked_s - before_s
            return False

        cluster.run(shape.seconds, look)

    def _liveness(self) -> None:
        cluster = self.cluster
        self._say("healing")
        self.conductor.heal()
        self.workload.stop()
        is_whole = cluster.run(HEALED_S, self.conductor.is_whole)
        # A client that pauses ends after its pause.
        pause_s = (
            10 * self.settings.pause_ms / 1000 + 4 * self._change_s
        )  # rough clients wait longest
        if not is_whole or not cluster.run(HEALED_S + pause_s, self._is_healed):
            raise _NotAlive(f"{HEALED_S:.0f} s after the healing: {self._what_is_missing()}")
        if self.conductor.damaged:
            self.conductor.read_all_logs()
            self._await_repair()
        self._until_decided()
        cluster.finish(probe(cluster, self.recorder), 120)
        topics = list(self.settings.topics)
        bank = BankCheck()

        def read(record: ConsumerRecord) -> int:
            if record.topic == BANK:
                bank.saw(record.value)
            return value_of(record.value)

        scanned = cluster.finish(scan_topics(cluster.bootstrap, topics, self.recorder, read), 120)
        for topic in self.own_topics:
            for words in cluster.finish(topic.compare(cluster), 120):
                self._violated("value lost", f"{topic.name}: {words}")
        if not bank.is_balanced:
            self._violated("bank", bank.words())
        if not scanned:
            raise _NotAlive("the last reading gave nothing for a minute")
        if self.conductor.damaged:  # the last readers may have read the damaged records
            self._await_repair()
        cluster.finish(write_down_the_end(cluster, self.recorder, self.settings))

    def _await_repair(self) -> None:
        if not self.cluster.run(
            HEALED_S, lambda: self.conductor.is_repaired() and self._is_healed()
        ):
            raise _NotAlive(f"{HEALED_S:.0f} s after damage: {self._what_is_missing()}")

    def _is_healed(self) -> bool:
        return (
            self.conductor.is_whole()
            and self.workload.has_ended()
            and self._admin.done()
            and self._own.done()
        )

    def _what_is_missing(self) -> str:
        parts = [f"{n.node_id}: serving {n.is_serving}" for n in self.cluster.nodes.values()]
        for node in self.cluster.serving:
            state = node.broker.state  # type: ignore[union-attr]
            parts += [
                f"{topic.name}/{i} leader {p.leader} isr {p.isr} of {p.replicas}"
                for topic in state.topics.values()
                for i, p in enumerate(topic.partitions)
                if set(p.isr) != set(p.replicas) or p.leader < 0
            ]
            break
        waiting = [name for name, task in self.workload.tasks.items() if not task.done()]
        return "; ".join([*parts, f"clients that have not ended: {waiting}"])

    def _until_decided(self) -> None:
        """Wait until two successive checks find no undecided transaction.

        One check is not enough, since a shard without a leader lists no transactions.
        """
        cluster, was_stuck = self.cluster, True
        end = cluster.timeline.now + DECIDED_S
        while True:
            stuck = cluster.finish(what_is_stuck(cluster))
            if not stuck and not was_stuck:
                return
            was_stuck = bool(stuck)
            if stuck and cluster.timeline.now > end:
                raise _NotAlive(
                    f"not decided {DECIDED_S:.0f} s after the healing: {stuck}; "
                    f"{self._open_transactions()}"
                )
            cluster.run(1.0)

    def _open_transactions(self) -> str:
        """Describe up to eight open transactions in partitions, with the coordinators' records."""
        found = []
        known: dict[int, str] = {}
        for node in self.cluster.serving:
            broker: Any = node.broker
            for shard in broker._transactions._shards:
                for name, record in shard.records.items():
                    known[record.producer_id] = (
                        f"{name} epoch {record.producer_epoch} {record.state.name}"
                    )
        for node in self.cluster.serving:
            broker = node.broker
            for hosted in broker.replicas:
                if hosted.leader is not None:
                    found += [
                        f"{hosted} on {node.node_id}: producer {entry.producer_id} epoch "
                        f"{entry.producer_epoch} since {entry.current_transaction_first_offset}, "
                        f"coordinator: {known.get(entry.producer_id)}"
                        for entry in hosted.log.producer_state.snapshot_entries()
                        if entry.current_transaction_first_offset >= 0
                    ]
        return "; ".join(found[:8])

    def _stop(self) -> None:
        """Stop all nodes by SIGTERM, so that their files are complete for the judge."""
        cluster = self.cluster
        stopped: list[int] = []
        for node in cluster.nodes.values():
            node.stop(then=lambda i=node.node_id: stopped.append(i))
        if not cluster.run(60, lambda: len(stopped) == len(cluster.nodes)):
            raise _NotAlive(f"only the nodes {stopped} stopped")
        self.conductor.remove_flipped()
        self.conductor.remove_damage()
        dump_logs(self.recorder, cluster.root, {*COMPACTED, latest_values.TOPIC})

    def _judge(self) -> None:
        outcome = self.outcome
        settings: dict[str, Any] = {"scan_interval_ms": 1_000, "keeps_all": True}
        history = outcome.history = History.of(self.recorder, settings=settings)
        verdict = judge(history)
        outcome.operations = verdict.operations
        outcome.transactions = history.count("transactions")
        outcome.faults = self.conductor.made
        for finding in verdict.violations:
            if finding.name == "unseen" and not self._is_complete:
                continue  # the log was never read to its end
            if finding.name == "nothing-succeeded" and (
                finding.cases[0].facts["tried"] < TRIED_MIN or self._whole_s < WHOLE_S_MIN
            ):
                continue  # the faults left no time; the probes show that all works
            cases = "; ".join(str(case) for case in finding.cases[:EXAMPLES_MAX])
            self._violated(finding.name, f"{finding.count} times: {cases}")
