"""Follows each batch in librdkafka's own log (its debug context `msg`).

The file does no I/O. librdkafka logs when it sends a batch (PRODUCE), when the batch is
acknowledged and when it ends without an answer (both MSGSET). Therefore the batches in flight when
a broker died, and the repeated batches, can be counted exactly. librdkafka's statistics come at
intervals and do not count repeated batches. A batch of an idempotent producer is recognised by its
first sequence number. Without idempotence, batches that were put back into the queue count as
repeated.
"""

import re
from operator import sub
from typing import NamedTuple

_SENT = re.compile(r" \[(\d+)\]: Produce MessageSet with (\d+) message\(s\) .*BaseSeq (-?\d+),")
_ENDED = re.compile(
    r" \[(\d+)\]: MessageSet with (\d+) message\(s\) \(MsgId \d+, BaseSeq (-?\d+)\) "
    r"(?:(delivered)|encountered error: (.*) \(actions ([^)]*)\))"
)


class TraceCounts(NamedTuple):
    """Counts of batches since the start.

    The difference of two objects has the counts in between.
    """

    sent: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    unanswered_records: int = 0
    sent_again: int = 0

    def since(self, earlier: "TraceCounts") -> "TraceCounts":
        """Return the counts of this object minus those of `earlier`."""
        return TraceCounts(*map(sub, self, earlier))


class BatchTrace:
    """Counts batches from log lines, in their order."""

    def __init__(self) -> None:
        self.counts = TraceCounts()
        self._seen: set[tuple[int, int]] = set()  # (partition, base sequence) that left once

    def feed(self, line: str) -> None:
        """Read one log line, and skip lines of other kinds."""
        c = self.counts
        if match := _SENT.search(line):
            batch = (int(match[1]), int(match[3]))
            again = batch[1] >= 0 and batch in self._seen
            if batch[1] >= 0:
                self._seen.add(batch)
            self.counts = c._replace(sent=c.sent + 1, sent_again=c.sent_again + again)
        elif match := _ENDED.search(line):
            if match[4]:
                self.counts = c._replace(acknowledged=c.acknowledged + 1)
                return
            # an error in an answer (NOT_LEADER) proves that nothing was appended
            is_unanswered = "PossiblyPersisted" in match[6]
            is_requeued = int(match[3]) < 0 and ("Refresh" in match[6] or "Retry" in match[6])
            self.counts = c._replace(
                unanswered=c.unanswered + is_unanswered,
                unanswered_records=c.unanswered_records + is_unanswered * int(match[2]),
                sent_again=c.sent_again + is_requeued,
            )
