"""The anomalies of a partition's log: names and sentences, for all judges of logs.

A pure table, at the bottom because its users may not import one another: `oncelog check`
(proof/judge) walks batch headers one by one, the audit on Spark (proof/audit) compares columns.
Sentences are in printf's form, which Spark's format_string shares.
"""

from typing import NamedTuple


class LogAnomaly(NamedTuple):
    """An anomaly of a log. `sentence` is empty where the two judges describe a case differently."""

    name: str
    what: str
    sentence: str = ""


OFFSET_DISORDER = LogAnomaly(
    "offset-disorder", "a batch stands at an offset that was there already"
)
OFFSET_GAP = LogAnomaly("offset-gap", "offsets are missing where nothing was compacted")
LEADER_EPOCH_FELL = LogAnomaly(
    "leader-epoch-fell",
    "a batch of an older leader epoch stands behind a newer one",
    "leader epoch %d stands after %d",
)
ZOMBIE_APPEND = LogAnomaly(
    "zombie-append",
    "a batch of an older producer epoch stands behind a newer one",
    "producer %d: epoch %d stands after epoch %d",
)
SEQUENCE_GAP = LogAnomaly(
    "sequence-gap",
    "a producer's sequences leave some out",
    "producer %d epoch %d: sequence %d where %d was next",
)
SEQUENCE_REPEATED = LogAnomaly(
    "sequence-repeated",
    "a producer's batch stands in the log a second time",
    SEQUENCE_GAP.sentence,
)
PLAIN_IN_TRANSACTION = LogAnomaly(
    "plain-in-transaction",
    "a plain batch of a producer within its open transaction",
    "producer %d wrote plainly while its transaction was open",
)
MARKER_MISSING = LogAnomaly(
    "marker-missing",
    "a producer writes in a newer epoch, and nothing has ended its transaction",
    "producer %d writes in epoch %d, and nothing has ended its transaction of epoch %d",
)
COORDINATOR_EPOCH_FELL = LogAnomaly(
    "coordinator-epoch-fell",
    "a marker of an older coordinator stands behind a newer one",
    "producer %d: coordinator epoch %d after %d",
)
OPEN_TRANSACTION = LogAnomaly(
    "open-transaction", "at the end a transaction has no marker", "producer %d epoch %d is open"
)
MIXED_MARKERS = LogAnomaly(
    "mixed-markers", "a transaction is committed in one partition and aborted in another"
)
ABORTED_VISIBLE = LogAnomaly(
    "aborted-visible", "a reader under read_committed was shown an aborted transaction"
)
OPEN_VISIBLE = LogAnomaly("open-visible", "a reader was shown a transaction that nothing ended")
COMMITTED_HIDDEN = LogAnomaly(
    "committed-hidden", "a committed transaction was hidden from a reader"
)
PHANTOM_READ = LogAnomaly("phantom-read", "a value was read that nobody ever sent")
REPLICA_DIVERGENCE = LogAnomaly(
    "replica-divergence",
    "two replicas differ below the high watermark",
    "replicas %d and %d differ",
)
