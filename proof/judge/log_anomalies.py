"""The anomalies of a partition's log, with names and messages, for all judges of logs.

The file is a table without logic. It is separate because its users may not import one another.
`oncelog check` (proof/judge) reads batch headers one by one, and the audit on Spark (proof/audit)
compares columns. Messages are in printf's form, which Spark's format_string shares.
"""

from typing import NamedTuple


class LogAnomaly(NamedTuple):
    """An anomaly of a log. `sentence` is empty if the two judges describe a case differently."""

    name: str
    what: str
    sentence: str = ""


OFFSET_DISORDER = LogAnomaly(
    "offset-disorder", "a batch has an offset that an earlier batch already had"
)
OFFSET_GAP = LogAnomaly("offset-gap", "offsets are missing in a log that was not compacted")
LEADER_EPOCH_FELL = LogAnomaly(
    "leader-epoch-fell",
    "a batch of an older leader epoch follows a newer one",
    "leader epoch %d follows %d",
)
ZOMBIE_APPEND = LogAnomaly(
    "zombie-append",
    "a batch of an older producer epoch follows a newer one",
    "producer %d: epoch %d follows epoch %d",
)
SEQUENCE_GAP = LogAnomaly(
    "sequence-gap",
    "sequence numbers of a producer are missing",
    "producer %d epoch %d: sequence %d instead of %d",
)
SEQUENCE_REPEATED = LogAnomaly(
    "sequence-repeated",
    "a batch of a producer is in the log twice",
    SEQUENCE_GAP.sentence,
)
PLAIN_IN_TRANSACTION = LogAnomaly(
    "plain-in-transaction",
    "a producer has a non-transactional batch within its open transaction",
    "producer %d wrote a non-transactional batch while its transaction was open",
)
MARKER_MISSING = LogAnomaly(
    "marker-missing",
    "a producer writes in a newer epoch, and no marker ended its earlier transaction",
    "producer %d writes in epoch %d, and no marker ended its transaction of epoch %d",
)
COORDINATOR_EPOCH_FELL = LogAnomaly(
    "coordinator-epoch-fell",
    "a marker of an older coordinator epoch follows a newer one",
    "producer %d: coordinator epoch %d follows %d",
)
OPEN_TRANSACTION = LogAnomaly(
    "open-transaction", "at the end a transaction has no marker", "producer %d epoch %d is open"
)
MIXED_MARKERS = LogAnomaly(
    "mixed-markers", "a transaction is committed in one partition and aborted in another"
)
ABORTED_VISIBLE = LogAnomaly(
    "aborted-visible", "a read_committed consumer got records of an aborted transaction"
)
OPEN_VISIBLE = LogAnomaly(
    "open-visible", "a read_committed consumer got records of a transaction without a marker"
)
COMMITTED_HIDDEN = LogAnomaly(
    "committed-hidden", "a read_committed consumer did not get records of a committed transaction"
)
PHANTOM_READ = LogAnomaly("phantom-read", "a consumer got a value that was never sent")
REPLICA_DIVERGENCE = LogAnomaly(
    "replica-divergence",
    "two replicas differ below the high watermark",
    "replicas %d and %d differ",
)
