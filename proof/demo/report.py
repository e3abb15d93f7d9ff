"""The screen of the demo, with progress, a line for each fault, and the verdict."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ...deploy.cluster.advice import shell_command
from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.cluster.terminal import say, tell, terminal_width, wrapped
from ..judge.contents import END_ANOMALIES, STREAM_ANOMALIES
from . import verdict
from .engines import Engine
from .output_judge import OUTPUT_ANOMALIES
from .run import ENRICHED, TOPIC, DemoReport, describe
from .stream import Stream
from .verdict import print_counts, print_findings, print_number, verdict_json

TICK_S, SILENCE_MAX_S = 0.2, 4.8
ERASE = "\r\x1b[K"
WHAT_IS_BROKEN = {
    "acks=1": "the leader acknowledges a record before a follower has it",
    "acks=0": "the producer waits for no answer",
    "idempotence=off": "a repeated batch is not recognized as a duplicate",
    "unclean": "min.insync.replicas is 1, and a replica that lacks records may become the leader",
    "fence=off": "offsets are sent without the group's metadata, so a late worker is not detected",
}
WITHOUT = {
    "acks=1": "acks=all an acknowledgement is a hope.",
    "acks=0": "acknowledgements delivery is at most once.",
    "idempotence=off": "idempotence delivery is at least once.",
    "unclean": "min.insync.replicas and clean elections the past can be replaced.",
    "fence=off": "the group's metadata two workers can do the same work.",
}


class Screen:
    """Shows the progress on stderr, as a live line in a terminal, else as a line now and then."""

    def __init__(self, seed: int, broken: str, options: str, what_is_broken: str) -> None:
        """Begin to show progress. `options` are the options of a command that repeats this run."""
        self._started = self._spoke = time.monotonic()
        self._is_live = sys.stderr.isatty()
        self._over = Flag()
        self._lock = threading.Lock()
        self._doing = "the nodes start"
        self._counts: Callable[[], str] = lambda: ""
        how = options + (f" --break {broken}" if broken != "none" else "")
        self.say(f"seed {seed}   (again: {shell_command('demo', seed=seed)}{how})")
        if broken != "none":
            self.say(f"one guarantee is taken away: {broken}: {what_is_broken}")
        threading.Thread(target=self._tick, daemon=True).start()

    def started(self, cluster: Cluster) -> None:
        self.say(f"{len(cluster.node_ids)} nodes serve: {cluster.bootstrap}")

    def follow(self, stream: Stream, engine: Engine) -> None:
        """Show the progress of the stream and the engine as well from now on."""

        def counts() -> str:
            return (
                f"{stream.handed_over:,} flights handed over, "
                f"{len(stream.acknowledged):,} acknowledged, {engine.outputs():,} enriched"
            )

        self._counts = counts

    def doing(self, words: str) -> None:
        """Show a sentence about what the demo waits for."""
        self._doing = words

    def say(self, text: str) -> None:
        with self._lock:
            self._spoke = time.monotonic()
            seconds = self._spoke - self._started
            self._erase()
            say(f"{seconds:6.1f} s  {text}")

    def end(self) -> None:
        self.close()
        self.say("read back and judged")

    def close(self) -> None:
        """Stop showing progress."""
        self._over.set()
        with self._lock:
            self._erase()

    def _erase(self) -> None:
        if self._is_live:
            print(ERASE, end="", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        while not self._over.wait(TICK_S):
            line = ", ".join(filter(None, (self._doing, self._counts())))
            if not self._is_live:
                if time.monotonic() - self._spoke >= SILENCE_MAX_S:
                    self.say(line)
                continue
            with self._lock:
                if not self._over.is_set():
                    shown = wrapped(f"          {line}", terminal_width(sys.stderr)).split("\n")[0]
                    print(f"{ERASE}{shown}", end="", file=sys.stderr, flush=True)


def print_verdict(report: DemoReport) -> None:
    """Print the verdict on stdout."""
    inputs, outputs = report.inputs, report.outputs
    tell("")
    print_number(report.handed_over, f"flights handed over, {report.acknowledged:,} acknowledged")
    print_number(inputs.read, f"records in {TOPIC}, {inputs.distinct:,} distinct")
    print_counts(STREAM_ANOMALIES, inputs.violations)
    print_number(outputs.read, f"records in {ENRICHED}, made of {outputs.distinct:,} inputs")
    print_counts(OUTPUT_ANOMALIES, outputs.violations)
    account = report.account
    print_number(account.count, account.words)
    if report.engine == "workers":
        not_known = "outputs of transactions that were not known to be committed"
        print_number(account.withheld, not_known)
    print_counts(END_ANOMALIES, report.at_the_end)
    right = report.groups - sum(wrong.count for wrong in report.wrong_totals)
    print_number(right, f"of {report.groups} sums by {report.sums_by} equal to the CSV's")
    tell(*_faults(report).split("\n"))
    if report.fatal_errors:
        tell(
            f"the producer detected that acknowledged records were lost: {report.fatal_errors} "
            "fatal errors"
        )
    print_findings(report.findings)
    tell("")
    tell(sentence(report))


def _faults(report: DemoReport) -> str:
    times = sorted(t for f in report.faults if (t := f.effect.failover_ms) is not None)
    again = sum(f.batches.sent_again for f in report.faults)
    unanswered = sum(f.batches.unanswered for f in report.faults)
    opened = sum(f.effect.open_transactions for f in report.faults)
    listed = ", ".join(f"{t:.0f}" for t in times)
    return (
        f"{len(report.faults)} faults hit {opened} open transactions and {unanswered} batches in "
        f"flight, of which {again} were sent again\nwrites continued after kills in (ms): {listed}"
    )


def sentence(report: DemoReport) -> str:
    return verdict.sentence(
        report,
        without=WITHOUT.get(report.broken, ""),
        no_proof="no kill hit work in flight",
        right="each flight counts once, from the producer to the sums",
    )


def as_json(report: DemoReport) -> dict[str, Any]:
    inputs, outputs = report.inputs, report.outputs
    return verdict_json(report) | {
        "engine": report.engine,
        "handed_over": report.handed_over,
        "acknowledged": report.acknowledged,
        "read": inputs.read,
        "distinct": inputs.distinct,
        "outputs_read": outputs.read,
        "outputs_distinct": outputs.distinct,
        "sums_read": outputs.sums_read,
        "transactions": dict(report.account.transactions),
        "outputs_withheld": report.account.withheld,
        "restarts": report.restarts,
        "failures": report.failures,
        "fatal_errors": report.fatal_errors,
        "faults": [
            {
                "kind": f.kind,
                "what": f.effect.what,
                "failover_ms": None if (ms := f.effect.failover_ms) is None else round(ms, 1),
                "open_transactions": f.effect.open_transactions,
                "batches_unacknowledged": f.batches.unanswered,
                "records_unacknowledged": f.batches.unanswered_records,
                "batches_sent_again": f.batches.sent_again,
                "told": describe(f),
            }
            for f in report.faults
        ],
    }
