"""The fixture `oncelog`, with which one test uses a cluster that other tests use, too.

Before and after the test the cluster is repaired, so that all nodes run and every replica is in
sync. After the test its open transactions are found and ended, and its topics are removed. Names
are fresh, so nothing else remains. Every action on a node is in a timeline, which a failure shows.
"""

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...deploy.cluster.blocking_admin import blocking_admin
from ...deploy.cluster.clock import ClockControl
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.schedule import schedule
from ...deploy.inspect.loop_stalls import stalls_in_log
from .faults import ScheduledFaults, read_kinds
from .leaks import OpenTransaction, abort, in_words, open_transactions, wait_for_decided

BEGIN_TIMEOUT_S = 40.0
REPORT_TIMEOUT_MS = 4_000
LEFT_OPEN = "The test left a transaction open. Commit or abort it, then close its producer."
LOG_LINES = 25
MARKER = "oncelog(nodes=3, faults='kill,pause', seed=7, allow_open=False, clock='controlled')"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments of a test's marker."""

    nodes: int = 3
    faults: tuple[str, ...] = ()
    seed: int | None = None
    allow_open: bool = False
    clock: str | None = None


def read_marker(positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> Wanted:
    """Return the marker's arguments, or raise Failure when they are invalid."""
    values = dict(keywords)
    known = [field.name for field in fields(Wanted)]
    if unknown := [name for name in values if name not in known]:
        raise Failure(f"The marker oncelog has no {unknown[0]!r}; it has {', '.join(known)}.")
    values["faults"] = read_kinds(values.get("faults") or "")
    try:
        return Wanted(*positional, **values)
    except TypeError:
        raise Failure(f"The marker is {MARKER}.") from None


class ClusterInTest:
    """The shared cluster as one test uses it.

    A target is a node's number, or the text of a role such as "controller". `cluster` has all other
    methods. A method that injects a fault returns as soon as the effect of the fault is proved,
    and, for a fault of one node, with the number of this node.
    """

    def __init__(
        self,
        cluster: Cluster,
        wanted: Wanted,
        *,
        seed: int,
        test: str,
        number: int,
        is_kept: bool = False,
    ) -> None:
        self.cluster, self.seed, self.bootstrap = cluster, seed, cluster.bootstrap
        self.client_config, self.ask = cluster.client_config, cluster.ask
        self.leader, self.controller = cluster.leader, cluster.controller
        self.coordinator = cluster.coordinator
        self._wanted, self._test, self._number = wanted, test, number
        self._is_kept = is_kept  # its directory, after the session
        self._began = time.monotonic()
        self._events: list[tuple[float, str]] = []
        self._verbs = threading.RLock()  # one action on the nodes at a time
        self._topics: list[str] = []
        self._open_before: frozenset[OpenTransaction] = frozenset()
        self._log_starts: dict[int, int] = {}
        self._faults: ScheduledFaults | None = None
        self._over_s: float | None = None  # when the faults were ended

    # --- names

    def name(self, text: str) -> str:
        """Return a name unique to this test, for a group or a transactional id."""
        return f"t{self._number}-{text}"

    def topic(
        self,
        text: str = "topic",
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic with a fresh name and return the name.

        The topic is deleted after the test.
        """
        name = self.name(text)
        self.ask(
            lambda admin: admin.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )
        )
        self._topics.append(name)
        self.cluster.wait_for_isr(name, 1)
        return name

    # --- time

    @property
    def clock(self) -> ClockControl:
        """Return the control of the nodes' clock.

        It needs the marker oncelog(clock="controlled").
        """
        return ClockControl(self.cluster, self.note)

    # --- faults

    def kill(self, target: int | str) -> int:
        """Send SIGKILL, and return when the process has ended and the port refuses."""
        return self._do("killed", target, self.cluster.kill)

    def stop(self, target: int | str) -> int:
        """Send SIGTERM, and return when the node has moved its leaders away and ended."""
        return self._do("stopped", target, self.cluster.stop)

    def start(self, target: int | str) -> int:
        """Start a node that is down, and return when it serves."""
        return self._do("started", target, self.cluster.start)

    def restart(self, target: int | str) -> int:
        """Stop a node by SIGTERM, and start it again with the same data."""
        return self._do("restarted", target, self.cluster.restart)

    def pause(self, target: int | str) -> int:
        """Send SIGSTOP, and return when the process is in state T."""
        return self._do("paused", target, self.cluster.pause)

    def resume(self, target: int | str) -> int:
        """Send SIGCONT to a paused node."""
        return self._do("resumed", target, self.cluster.resume)

    def slow(self, target: int | str, delay_ms: int) -> int:
        """Delay the messages from a node to its peers by `delay_ms`."""
        word = f"slowed by {delay_ms} ms"
        return self._do(word, target, lambda t: self.cluster.slow(t, delay_ms))

    def partition(self, one: Iterable[int], other: Iterable[int], *, one_way: bool = False) -> None:
        """Cut the links between two groups of nodes, with `one_way` only from `one` to `other`."""
        left, right = list(one), list(other)
        with self._verbs:
            self.cluster.partition(left, right, one_way=one_way)
            self.note(f"cut {left} off from {right}{' in this direction' if one_way else ''}")

    def heal(self) -> None:
        """Restore links, resume paused nodes, start stopped nodes."""
        with self._verbs:
            self.cluster.heal()
            self.note("healed: all nodes serve, all links are whole")

    def wait_for_faults(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until this number of faults of the marker's schedule has occurred and is over."""
        if self._faults is None:
            raise Failure("This test has no faults. Give them with the marker `oncelog`.")
        self._faults.wait(count, timeout_s)

    def note(self, text: str) -> None:
        """Add a line to the timeline that a failure shows."""
        self._events.append((time.monotonic() - self._began, text))

    # --- the fixture's part

    def begin(self) -> None:
        """Wait until all replicas are in sync, note the cluster's state, and start the faults."""
        self.cluster.heal()
        self.cluster.wait_for_isr(timeout_s=BEGIN_TIMEOUT_S)
        self._open_before = self.cluster.ask(open_transactions)
        for node_id in self.cluster.node_ids:
            self._log_starts[node_id] = self.cluster.node(node_id).log.stat().st_size
        self._began = time.monotonic()
        if self._wanted.faults:
            faults = schedule(f"{self.seed} {self._test}", self._wanted.faults)
            self._faults = ScheduledFaults(self.cluster, faults, note=self.note, lock=self._verbs)
            self._faults.thread.start()

    def abandon(self) -> None:
        """End the faults after Ctrl-C. The nodes end with the pytest session."""
        if self._faults is not None:
            self._faults.stop(undo=False)

    def stop_faults(self) -> None:
        """End the faults after the test, because a report needs a cluster that can answer."""
        if self._faults is not None:
            self._end(self._faults)

    def finish(self, *, has_failed: bool) -> list[str]:
        """Repair the cluster and remove what the test has left. Return reasons to fail the test."""
        problems: list[str] = []
        if self._faults is not None:
            over_s = self._end(self._faults)
            if self._faults.problem is not None:
                problems.append(f"A fault could not be injected: {self._faults.problem}")
            elif not self._faults.ended and not has_failed:
                problems.append(
                    f"The test ended after {over_s:.1f} s, before a fault was injected, so it "
                    f"proves nothing. Let it do more, or call oncelog.wait_for_faults(1)."
                )
        try:
            self.cluster.heal()
            left = self.cluster.ask(lambda admin: wait_for_decided(admin, self._open_before))
            if left:
                for each in left:
                    self.note(f"left open: {each.transactional_id}")
                if not has_failed and not self._wanted.allow_open:
                    told = self.cluster.ask(lambda admin: in_words(admin, left))
                    problems.append(f"{LEFT_OPEN}\n{told}")
                self.cluster.ask(lambda admin: abort(admin, left))
            if self._topics:
                self.cluster.ask(lambda admin: admin.delete_topics(self._topics))
        except Exception as problem:
            problems.append(f"The cluster could not be repaired after the test: {problem}")
        for node_id in self.cluster.node_ids:
            log, start = self.cluster.node(node_id).log, self._log_starts.get(node_id, 0)
            problems += [
                f"Node {node_id} did not answer for a while, a defect of oncelog: {stall}"
                for stall in stalls_in_log(log, from_byte=start)
            ]
        return problems

    def sections(self) -> list[tuple[str, str]]:
        """Return the sections of a failure report, as pairs of heading and text."""
        found = [("oncelog timeline", "\n".join(self._timeline()))]
        try:
            opened = self._opened_in_words()
        except Exception as problem:
            opened = f"could not be asked for: {problem}"
        if opened:
            found.append(("oncelog open transactions", opened))
        for node_id in self.cluster.node_ids:
            start = self._log_starts.get(node_id, 0)
            text = self.cluster.node(node_id).log_tail(LOG_LINES, from_byte=start) or "(nothing)"
            found.append((f"oncelog node {node_id:d}, its log since the test began", text))
        if self._wanted.faults:
            again = f"python -m pytest {shlex.quote(self._test)} --oncelog-seed={self.seed}"
            found.append(("oncelog: the same faults again", again))
        if self._is_kept:
            found.append(("oncelog: its data", str(self.cluster.data)))
        return found

    # --- inner

    def _end(self, faults: ScheduledFaults) -> float:
        """End and undo the faults. Return the seconds from the start of the test to its end."""
        if self._over_s is None:
            self._over_s = time.monotonic() - self._began
            self.note("the test is over")
            faults.stop()
        return self._over_s

    def _do(self, word: str, target: int | str, verb: Callable[[int | str], int]) -> int:
        with self._verbs:
            node_id = verb(target)
            role = "" if str(target) == str(node_id) else f" ({target})"
            self.note(f"{word} node {node_id}{role}")
            return node_id

    def _opened_in_words(self) -> str:
        """Return a text about open transactions, from the nodes that still answer."""
        with blocking_admin(self.client_config(), timeout_ms=REPORT_TIMEOUT_MS) as admin:
            opened = admin.run(lambda a: open_transactions(a, needs_all_brokers=False))
            left = sorted(opened - self._open_before)
            return admin.run(lambda a: in_words(a, left))

    def _timeline(self) -> Iterator[str]:
        yield f"{0:7.2f} s  nodes {self.cluster.node_ids} serve, seed {self.seed}"
        for at, text in sorted(self._events):
            yield f"{at:7.2f} s  {text}"
        states = ", ".join(f"{s.node_id} {s.state}" for s in self.cluster.status())
        yield f"{time.monotonic() - self._began:7.2f} s  nodes now: {states}"
