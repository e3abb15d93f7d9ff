"""Build a history from operations in the form of Jepsen's tests, each as a transaction.

A key is a partition, and a value is an integer that is unique in its key. An operation takes one
time step. Its polls return at its end, just before it commits.
"""

from typing import Any, NamedTuple

from oncelog.proof.judge.analysis.view import View
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.rows import Handle
from oncelog.proof.judge.history.schema import NONE, OpOutcome
from oncelog.proof.judge.verdict import Verdict, judge

OUTCOMES = {"ok": OpOutcome.OK, "fail": OpOutcome.FAIL, "info": OpOutcome.INFO}
VALUES = ("values", "skipped")  # facts that are lists of values
J_CHECKS = [f"J{number}" for number in range(1, 10)]


class Send(NamedTuple):
    key: str
    value: object
    offset: int = -1


class Poll(NamedTuple):
    key: str
    pairs: tuple[tuple[int, object], ...]


def poll(key: str, *pairs: tuple[int, object]) -> Poll:
    return Poll(key, pairs)


class Ops:
    """A history that a test builds operation by operation."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.recorder = Recorder.in_memory(clock_ns=lambda: self.now_ns)
        self.values: dict[tuple[str, object], int] = {}
        self._sessions: dict[tuple[int, str], int] = {}
        self._assigned: dict[tuple[int, str], Handle] = {}

    def value(self, key: str, value: object) -> int:
        if (key, value) not in self.values:
            self.values[(key, value)] = self.recorder.new_value()
        return self.values[(key, value)]

    def plain(self, number: int) -> Any:
        """Return the Jepsen test's own value for a value of the history."""
        return next(value for (_, value), each in self.values.items() if each == number)

    def op(
        self, process: int, kind: str, *parts: Send | Poll, begun: int = -1, ended: int = -1
    ) -> None:
        """Add an operation. `begun` and `ended` are its times if operations overlap."""
        self.now_ns = begun if begun >= 0 else self.now_ns + 1
        transaction = self.recorder.begin(process, f"p{process}")
        call, handle = self.recorder.poll_invoked(process, transaction)
        sends = [
            self.recorder.send_invoked(
                process,
                part.key,
                self.value(part.key, part.value),
                transaction,
                session=self._sessions.get((process, part.key), 0),
            )
            for part in parts
            if isinstance(part, Send)
        ]
        self.now_ns = ended if ended >= 0 else self.now_ns + 1
        for sent, part in zip(sends, (p for p in parts if isinstance(p, Send)), strict=True):
            outcome = OpOutcome.INFO if part.offset < 0 else OpOutcome.OK
            self.recorder.send_ended(sent, outcome, offset=part.offset)
        returned_ns = self.recorder.poll_returned(handle)
        for part in parts:
            if isinstance(part, Poll):
                for offset, value in part.pairs:
                    self.recorder.polled(
                        process,
                        call,
                        part.key,
                        offset,
                        self.value(part.key, value),
                        returned_ns=returned_ns,
                        transaction=transaction,
                        session=self._sessions.get((process, part.key), 0),
                    )
        if kind != "fail":
            self.recorder.commit_invoked(transaction)
        self.recorder.transaction_ended(transaction, OUTCOMES[kind])

    def assign(self, process: int, *keys: str) -> None:
        """Assign exactly these keys to the process, and revoke its other keys."""
        self.now_ns += 1
        for of, key in list(self._assigned):
            if of == process and key not in keys:
                self.recorder.revoked(self._assigned.pop((of, key)))
        for of, key in list(self._known(process)):
            if key not in keys:
                self._sessions[(of, key)] = self._sessions.get((of, key), 0) + 1
        for key in keys:
            if (process, key) not in self._assigned:
                session = self._sessions.setdefault((process, key), 0)
                handle = self.recorder.assigned(process, session, key, NONE)
                self._assigned[(process, key)] = handle

    def _known(self, process: int) -> set[tuple[int, str]]:
        return {(process, key) for key in {key for key, _ in self.values}} | {
            known for known in self._sessions if known[0] == process
        }

    def history(self) -> History:
        return History.of(self.recorder)

    def view(self) -> View:
        return View(self.history())

    def verdict(self) -> Verdict:
        return judge(self.history(), J_CHECKS)

    def count(self, anomaly: str) -> int:
        """Return how often the judge finds this anomaly."""
        return sum(f.count for f in self.verdict().findings if f.name == anomaly)

    def cases(self, anomaly: str) -> list[dict[str, Any]]:
        """Return the facts of each case of this anomaly."""
        found = [f for f in self.verdict().findings if f.name == anomaly]
        return [dict(case.facts) for f in found for case in f.cases]

    def facts(self, anomaly: str, *names: str) -> list[tuple[Any, ...]]:
        """Return the named facts of each case, with values as the Jepsen test wrote them."""
        return [tuple(self._fact(case, name) for name in names) for case in self.cases(anomaly)]

    def _fact(self, case: dict[str, Any], name: str) -> Any:
        if name == "value":
            return self.plain(case[name])
        return list(map(self.plain, case[name])) if name in VALUES else case[name]
