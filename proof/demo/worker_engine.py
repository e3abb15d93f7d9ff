"""The demo's engine of plain workers, two processes of one consumer group, and their faults.

The workers' reports aim the faults at a transaction that has just begun, or at a transaction that
is being committed.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.schedule import Fault
from . import fault_plan, flights
from .engine import FAILOVER_TIMEOUT_S, Account, Effect, EngineProcesses
from .output_judge import Inputs, OutputVerdict, Records, judge_outputs
from .reading import wait_for
from .worker import GROUP, WorkerSettings
from .worker_processes import ReportedTransaction, WorkerProcesses

NAMES = ("worker-1", "worker-2")
START_TIMEOUT_S = 25.0
AIM_ATTEMPTS_MAX = 30
TAKEOVER_TIMEOUT_S = 12.0  # must be over before the sleeper's transaction times out
OPEN = ("began", "sending", "committing")


class WorkerEngine(EngineProcesses[WorkerProcesses]):
    """The engine that consists of two worker processes.

    is_fenced: with False, offsets are sent without the group's metadata.
    """

    name = "two workers"
    kinds = fault_plan.OF_TRANSACTIONS
    topics = ("__consumer_offsets",)
    sums_by = "carrier and month"
    expected_sums = staticmethod(flights.sums_of_csv)
    horizon_s = 20.0
    drain_timeout_s = 60.0

    def __init__(
        self, cluster: Cluster, *, source: str, enriched: str, sums: str, is_fenced: bool
    ) -> None:
        self.source = source
        settings = WorkerSettings(
            connection=cluster.connection,
            source=source,
            enriched=enriched,
            sums=sums,
            is_fenced=is_fenced,
        )
        super().__init__(cluster, WorkerProcesses(settings, cluster.data))

    def start(self) -> None:
        """Create the topic of offsets, and start every worker."""
        self.cluster.coordinator("group", GROUP)
        for topic in self.topics:
            self.cluster.wait_for_isr(topic, len(self.cluster.node_ids))
        for name in NAMES:
            self.processes.start(name)

    def wait_until_at_work(self) -> str | None:
        """Wait until each worker has begun a transaction.

        Return None, or a sentence if some worker has not.
        """
        last = self.processes.last
        if self.processes.wait(lambda: len(last) == len(NAMES), START_TIMEOUT_S):
            return None
        return f"{sorted(last) or 'no worker'} began a transaction"

    def open_transactions(self) -> int:
        """Count the open transactions in the workers' last reports."""
        return sum(transaction.state in OPEN for transaction in self.processes.last.values())

    def done(self) -> dict[int, int]:
        found = self.cluster.ask(lambda admin: admin.groups.committed(GROUP))
        return {p: value.offset for (topic, p), value in found.items() if topic == self.source}

    def outputs(self) -> int:
        """Count the records of transactions that were reported as committed."""
        reported = list(self.processes.transactions.values())
        return sum(t.records for t in reported if t.state == "committed")

    def judge(self, inputs: Inputs, enriched: Records, sums: Records) -> OutputVerdict:
        """Compare the outputs with the inputs and the transactions that the workers reported."""
        made = ((p, offset, value) for p, offset, _, value in enriched)
        return judge_outputs(inputs, made, sums, self.processes.transactions, flights.airlines())

    def account(self) -> Account:
        told = self.processes.transactions.values()
        states = Counter("cut off" if t.state in OPEN else t.state for t in told)
        withheld = sum(t.records for t in told if t.state != "committed")
        ended = ", ".join(f"{n:,} {state}" for state, n in sorted(states.items()))
        return Account(len(told), f"transactions: {ended}", states, withheld)

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
        name = fault.pick(0, self.processes.names)
        node = self.cluster.coordinator("txn", name)
        moment = _moment(fault)
        transaction = self._await_transaction(name, moment)
        what = f"killed node {node}, coordinator of transaction {transaction.name}, {moment}"
        return self._coordinator(node, fault, [name], what)

    def _group(self, fault: Fault) -> Effect:
        node = self.cluster.coordinator("group", GROUP)
        self._await_transaction(fault.pick(0, self.processes.names), _moment(fault))
        what = f"killed node {node}, coordinator of group {GROUP}"
        return self._coordinator(node, fault, self.processes.names, what)

    def _coordinator(self, node: int, fault: Fault, names: Sequence[str], what: str) -> Effect:
        self.cluster.kill(node)
        killed_at, hit = time.monotonic(), self.open_transactions()
        failover_ms = self._await_commits(names, killed_at)
        time.sleep(fault_plan.outage_s(fault))
        self.cluster.start(node)
        return Effect(what, hit, failover_ms)

    def _worker(self, fault: Fault) -> Effect:
        name = fault.pick(0, self.processes.names)
        transaction = self._await_transaction(name, _moment(fault))
        self.processes.kill(name)
        killed_at, hit = time.monotonic(), int(transaction.state in OPEN)
        time.sleep(fault_plan.outage_s(fault))
        self.processes.start(name)
        failover_ms = self._await_commits([name], killed_at)
        what = f"killed {name} in transaction {transaction.name}, {transaction.state}"
        return Effect(what, hit, failover_ms)

    def _zombie(self, fault: Fault) -> Effect:
        name = fault.pick(0, self.processes.names)
        transaction = self._stop_within_a_transaction(name)
        try:
            taken_over = self._await_takeover(transaction)
        finally:
            self.processes.resume(name)

        # by its own report; or it was fenced: then it ended, and was restarted
        def is_over() -> bool:
            return transaction.state not in OPEN or self.processes.last[name] is not transaction

        if not self.processes.wait(is_over, 30):
            raise Failure(f"{name} was woken, and its transaction {transaction.name} never ended.")
        end = transaction.state if transaction.state not in OPEN else "fenced"
        also = f" ({transaction.error})" if transaction.error else ""
        what = f"{name} stood still in transaction {transaction.name} "
        what += "until another had done its work" if taken_over else "for a while"
        return Effect(f"{what}, and woke: {end}{also}", 1)

    def _await_commits(self, names: Iterable[str], killed_at: float) -> float:
        """Wait until each of these workers has committed a transaction that began after the kill.

        Return the ms from the kill to the last of these commits.
        """

        def when() -> list[float | None]:
            committed = self.processes.committed_after(killed_at)
            return [committed[name] for name in names]

        return self.failover_ms(when, killed_at, "Not all workers")

    def _await_transaction(self, name: str, moment: str) -> ReportedTransaction:
        """Wait until a transaction of this worker reaches the step `moment`, and return it."""
        before = self.processes.last.get(name)

        def has_come() -> bool:
            last = self.processes.last.get(name)
            return last is not None and last is not before and last.state == moment

        if not self.processes.wait(has_come, FAILOVER_TIMEOUT_S):
            raise Failure(f"{name} began no transaction. Its log is in {self.cluster.data}.")
        return self.processes.last[name]

    def _stop_within_a_transaction(self, name: str) -> ReportedTransaction:
        """Pause the worker after it has read its inputs, and before it sends their offsets."""
        for _ in range(AIM_ATTEMPTS_MAX):
            self._await_transaction(name, "began")
            self.processes.pause(name)
            transaction = self.processes.last[name]
            if transaction.state == "began":
                return transaction
            self.processes.resume(name)
        raise Failure(f"{name} could not be stopped within a transaction.")

    def _await_takeover(self, transaction: ReportedTransaction) -> bool:
        """Return whether another worker committed the inputs of this transaction in time."""

        def is_done() -> bool:
            committed = self.done()
            return all(committed.get(p, 0) >= until for p, until in transaction.until.items())

        return wait_for(is_done, TAKEOVER_TIMEOUT_S)


def _moment(fault: Fault) -> str:
    return fault.pick(1, fault_plan.MOMENTS)
