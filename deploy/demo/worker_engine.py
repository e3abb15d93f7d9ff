"""The demo's engine of plain workers: two processes of one consumer group, and their faults.

The faults are aimed by what the workers tell: a transaction that has just begun, one that is being
committed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..cluster.failure import Failure
from ..cluster.local_cluster import Cluster
from . import fault_plan, flights
from .engine import FAILOVER_TIMEOUT_S, Account, Effect, failover_ms
from .fault_plan import Fault
from .output_judge import Inputs, OutputVerdict, Records, judge_outputs
from .worker import WorkerSettings
from .workers import Told, Workers

GROUP, NAMES = "enrichment", ("worker-1", "worker-2")
START_TIMEOUT_S = 25.0
SESSION_MS, TRANSACTION_TIMEOUT_MS = 2_500, 20_000
AIM_ATTEMPTS_MAX = 30
TAKEOVER_TIMEOUT_S = 12.0  # must be over before the sleeper's transaction times out
OPEN = ("began", "sending", "committing")


class WorkerEngine:
    """See the top of the file. is_fenced: False sends offsets without the group's metadata."""

    kinds = fault_plan.OF_TRANSACTIONS
    topics = ("__consumer_offsets",)
    sums_by = "carrier and month"
    horizon_s = 20.0
    drain_timeout_s = 60.0

    def __init__(
        self, cluster: Cluster, *, source: str, enriched: str, sums: str, is_fenced: bool
    ) -> None:
        self.cluster, self.source = cluster, source
        self.workers = Workers(
            [
                WorkerSettings(
                    bootstrap=cluster.bootstrap,
                    name=name,
                    incarnation=0,
                    group=GROUP,
                    source=source,
                    enriched=enriched,
                    sums=sums,
                    session_ms=SESSION_MS,
                    transaction_ms=TRANSACTION_TIMEOUT_MS,
                    is_fenced=is_fenced,
                )
                for name in NAMES
            ],
            cluster.data,
        )

    @property
    def restarts(self) -> int:
        """How often a worker ended by itself."""
        return self.workers.restarts

    def start(self) -> None:
        """Make the topic of offsets, start every worker."""
        self.cluster.coordinator("group", GROUP)
        for topic in self.topics:
            self.cluster.wait_for_isr(topic, len(self.cluster.node_ids))
        self.workers.start_all()

    def wait_until_at_work(self) -> str | None:
        """Until every worker has begun a transaction."""
        last = self.workers.last
        if self.workers.wait(lambda: len(last) == len(NAMES), START_TIMEOUT_S):
            return None
        return f"{sorted(last) or 'no worker'} began a transaction"

    def check(self) -> None:
        """Raise what stopped the workers."""
        if self.workers.failed is not None:
            raise self.workers.failed

    def open_transactions(self) -> int:
        """By what the workers told last."""
        return sum(told.state in OPEN for told in self.workers.last.values())

    def done(self) -> dict[int, int]:
        found = self.cluster.ask(lambda admin: admin.groups.committed(GROUP))
        return {p: value.offset for (topic, p), value in found.items() if topic == self.source}

    def outputs(self) -> int:
        """Of transactions that were told to be committed."""
        told = list(self.workers.transactions.values())
        return sum(t.records for t in told if t.state == "committed")

    def stop(self) -> None:
        self.workers.stop()

    def close(self) -> None:
        self.workers.close()

    def remove_logs(self) -> None:
        self.workers.remove_logs()

    def judge(self, inputs: Inputs, enriched: Records, sums: Records) -> OutputVerdict:
        """By what the workers told of their transactions, too."""
        made = ((p, offset, value) for p, offset, _, value in enriched)
        return judge_outputs(inputs, made, sums, self.workers.transactions, flights.airlines())

    def expected_sums(self, rows: int) -> flights.Sums:
        return flights.sums_of_csv(rows)

    def account(self) -> Account:
        states: dict[str, int] = {}
        withheld = 0
        for told in self.workers.transactions.values():
            state = {"committed": "committed", "aborted": "aborted"}.get(told.state, "cut off")
            states[state] = states.get(state, 0) + 1
            withheld += told.records if told.state != "committed" else 0
        ended = ", ".join(f"{n:,} {state}" for state, n in sorted(states.items()))
        return Account(sum(states.values()), f"transactions: {ended}", states, withheld)

    # --- faults

    def inflict(self, fault: Fault) -> Effect:
        inflict: Mapping[str, Callable[[Fault], Effect]] = {
            "transaction": self._transaction,
            "group": self._group,
            "worker": self._worker,
            "zombie": self._zombie,
        }
        return inflict[fault.kind](fault)

    def _transaction(self, fault: Fault) -> Effect:
        name = self.workers.names[fault.worker]
        node = self.cluster.coordinator("txn", name)
        told = self._await_transaction(name, fault.moment)
        what = f"killed node {node}, coordinator of transaction {told.name}, {fault.moment}"
        return self._coordinator(node, fault, [name], what)

    def _group(self, fault: Fault) -> Effect:
        node = self.cluster.coordinator("group", GROUP)
        self._await_transaction(self.workers.names[fault.worker], fault.moment)
        what = f"killed node {node}, coordinator of group {GROUP}"
        return self._coordinator(node, fault, self.workers.names, what)

    def _coordinator(self, node: int, fault: Fault, names: Sequence[str], what: str) -> Effect:
        self.cluster.kill(node)
        killed_at, hit = time.monotonic(), self.open_transactions()
        failover_ms = self._await_commits(names, killed_at)
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        return Effect(what, hit, failover_ms)

    def _worker(self, fault: Fault) -> Effect:
        name = self.workers.names[fault.worker]
        told = self._await_transaction(name, fault.moment)
        self.workers.kill(name)
        killed_at, hit = time.monotonic(), int(told.state in OPEN)
        time.sleep(fault.outage_s)
        self.workers.start(name)
        failover_ms = self._await_commits([name], killed_at)
        return Effect(f"killed {name} in transaction {told.name}, {told.state}", hit, failover_ms)

    def _zombie(self, fault: Fault) -> Effect:
        name = self.workers.names[fault.worker]
        told = self._stop_within_a_transaction(name)
        try:
            taken_over = self._await_takeover(told)
        finally:
            self.workers.resume(name)
        if not self.workers.wait(lambda: told.state not in OPEN or self._has_left(told), 30):
            raise Failure(f"{name} was woken, and its transaction {told.name} never ended.")
        end = told.state if told.state not in OPEN else "fenced"
        also = f" ({told.why})" if told.why else ""
        what = f"{name} stood still in transaction {told.name} "
        what += "until another had done its work" if taken_over else "for a while"
        return Effect(f"{what}, and woke: {end}{also}", 1)

    def _await_commits(self, names: Iterable[str], killed_at: float) -> float:
        """Milliseconds until each of these workers committed a transaction that it began later."""

        def when() -> list[float | None]:
            committed = self.workers.committed_after(killed_at)
            return [committed[name] for name in names]

        return failover_ms(
            self.workers,
            when,
            killed_at,
            FAILOVER_TIMEOUT_S,
            f"Not all workers committed anything for {FAILOVER_TIMEOUT_S:.0f} s after the "
            f"kill. Logs are under {self.cluster.data}.",
        )

    def _await_transaction(self, name: str, moment: str) -> Told:
        """A transaction of this worker that has just come so far."""
        known = self.workers.last.get(name)
        before = known.name if known is not None else ""

        def has_come() -> bool:
            told = self.workers.last.get(name)
            return told is not None and told.name != before and told.state == moment

        if not self.workers.wait(has_come, FAILOVER_TIMEOUT_S):
            raise Failure(f"{name} began no transaction. Its log is in {self.cluster.data}.")
        return self.workers.last[name]

    def _stop_within_a_transaction(self, name: str) -> Told:
        """Stop the worker after it has read its inputs, and before it sends their offsets."""
        for _ in range(AIM_ATTEMPTS_MAX):
            self._await_transaction(name, "began")
            self.workers.pause(name)
            told = self.workers.last[name]
            if told.state == "began":
                return told
            self.workers.resume(name)
        raise Failure(f"{name} could not be stopped within a transaction.")

    def _await_takeover(self, told: Told) -> bool:
        """Whether another worker has committed what this transaction was to do, in time."""
        deadline = time.monotonic() + TAKEOVER_TIMEOUT_S
        while time.monotonic() < deadline:
            committed = self.done()
            if all(committed.get(p, 0) >= until for p, until in told.until.items()):
                return True
            time.sleep(0.05)
        return False

    def _has_left(self, told: Told) -> bool:
        """Whether the worker has been started again since: it was fenced, and ended."""
        return self.workers.last[told.worker].name != told.name
