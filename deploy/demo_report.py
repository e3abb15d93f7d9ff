"""How the demo is shown: a line of progress, a line a fault, the verdict."""

import sys
import threading
import time
from typing import Any

from .demo import BREAKS, TOPIC, DemoReport, describe
from .demo_stream import Stream
from .local_cluster import Cluster

WHAT_IS_BROKEN = {
    "acks=1": "the leader answers before anybody else has the record",
    "acks=0": "the producer does not wait for any answer",
    "idempotence=off": "a batch that is sent again is not recognised",
    "unclean": "min.insync.replicas=1, and a replica that missed records may lead",
}


class Screen:
    """The words while it runs, on stderr; a live line when a person watches."""

    def __init__(self, seed: int, broken: str) -> None:
        self._started = time.monotonic()
        self._is_live = sys.stderr.isatty()
        self._stream: Stream | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        how = f" --break {broken}" if broken != "none" else ""
        self.say(f"seed {seed}   (again: oncelog demo --seed {seed}{how})")
        if broken != "none":
            self.say(f"one guarantee is taken away: {broken}: {WHAT_IS_BROKEN[broken]}")

    def started(self, cluster: Cluster) -> None:
        """The cluster serves."""
        self.say(f"{len(cluster.node_ids)} nodes serve: {cluster.bootstrap}")

    def follow(self, stream: Stream) -> None:
        """Show how far the stream is, a few times a second."""
        self._stream = stream
        if self._is_live:
            threading.Thread(target=self._tick, daemon=True).start()

    def say(self, text: str) -> None:
        """One line."""
        with self._lock:
            erase = "\r\x1b[K" if self._is_live else ""
            seconds = time.monotonic() - self._started
            print(f"{erase}{seconds:6.1f} s  {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """No more progress."""
        self._over.set()
        self.say("read back and judged")

    def _tick(self) -> None:
        stream = self._stream
        while stream is not None and not self._over.wait(0.2):
            with self._lock:
                done = f"{stream.handed_over:,} flights handed over, "
                done += f"{len(stream.acknowledged):,} acknowledged"
                print(f"\r\x1b[K          {done}", end="", file=sys.stderr, flush=True)


def print_verdict(report: DemoReport) -> None:
    """The end of the story, on stdout."""
    verdict = report.verdict
    assert verdict is not None
    kills = [f for f in report.faults if f.failover_ms is not None]
    times = sorted(f.failover_ms for f in kills if f.failover_ms is not None)
    again = sum(f.batches.sent_again for f in report.faults)
    unanswered = sum(f.batches.unanswered for f in report.faults)
    print()
    print(f"{verdict.handed_over:>9,}  flights handed over")
    print(f"{verdict.acknowledged:>9,}  acknowledged")
    print(f"{verdict.read:>9,}  records read back from {TOPIC}, {verdict.distinct:,} distinct")
    for kind in ("lost", "doubled", "out of order", "displaced", "altered", "undelivered"):
        print(f"{verdict.count(kind):>9,}  {kind}")
    sums = report.wrong_sums
    right = report.groups - (sums.count if sums else 0)
    print(f"{right:>9,}  of {report.groups} sums by carrier and month equal to the CSV's")
    if times:
        listed = ", ".join(f"{t:.0f}" for t in times)
        print(f"{len(report.faults)} faults; writes went on after (ms): {listed}")
    print(f"{unanswered} batches in flight lost their answer, {again} were sent again")
    if report.fatal_errors:
        print(f"the producer noticed that the past had changed: {report.fatal_errors} fatal errors")
    for finding in report.findings:
        print(f"  {finding.kind}: {finding.count:,}, for instance {finding.examples[0]}")
    print()
    print(sentence(report))


def sentence(report: DemoReport) -> str:
    """The verdict in one sentence."""
    took = f"seed {report.seed}, {report.seconds:.0f} s"
    if report.findings:
        named = ", ".join(f"{f.count:,} {f.kind}" for f in report.findings)
        why = f" Without {_guarantee(report.broken)}" if report.broken != "none" else ""
        return f"VIOLATED: {named} ({took}).{why}"
    if not report.is_proof:
        return f"NOT A PROOF: no kill hit a batch in flight ({took}). Run it again."
    if report.broken != "none":
        return f"Nothing was lost or doubled this time, by luck ({took})."
    return f"EXACTLY ONCE: every acknowledged flight is there once, in order ({took})."


def as_json(report: DemoReport) -> dict[str, Any]:
    """Everything, for programs."""
    verdict = report.verdict
    assert verdict is not None
    return {
        "seed": report.seed,
        "break": report.broken,
        "verdict": "violated" if report.findings else "ok" if report.is_proof else "no proof",
        "handed_over": verdict.handed_over,
        "acknowledged": verdict.acknowledged,
        "read": verdict.read,
        "distinct": verdict.distinct,
        "violations": [
            {"kind": f.kind, "count": f.count, "examples": f.examples} for f in report.findings
        ],
        "failures": report.failures,
        "fatal_errors": report.fatal_errors,
        "seconds": round(report.seconds, 1),
        "faults": [
            {
                "kind": f.kind,
                "what": f.what,
                "failover_ms": round(f.failover_ms, 1) if f.failover_ms is not None else None,
                "batches_unacknowledged": f.batches.unanswered,
                "records_unacknowledged": f.batches.unanswered_records,
                "batches_sent_again": f.batches.sent_again,
                "told": describe(f),
            }
            for f in report.faults
        ],
    }


def _guarantee(broken: str) -> str:
    assert broken in BREAKS
    return {
        "acks=1": "acks=all an acknowledgement is a hope.",
        "acks=0": "acknowledgements delivery is at most once.",
        "idempotence=off": "idempotence delivery is at least once.",
        "unclean": "min.insync.replicas and clean elections the past can be replaced.",
    }[broken]
