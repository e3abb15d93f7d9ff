"""The findings, with their meaning and their remedy. Each has a section in docs/findings.md.

A finding is "wrong" if the mistake alone breaks exactly once. A finding is "exposed" if the mistake
breaks it only in rare cases of the cluster. Correct applications may have exposed findings, too.
"""

from dataclasses import dataclass
from typing import Literal

PAGE = "docs/findings.md"


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding. Its name is also the anchor of its section in docs/findings.md."""

    name: str
    title: str
    why: str
    remedy: str
    weight: Literal["wrong", "exposed"] = "wrong"

    @property
    def section(self) -> str:
        return f"{PAGE}#{self.name}"


@dataclass(frozen=True, slots=True)
class ApplicationFinding:
    """A mistake of the application that was found in its requests.

    instance: the instance in which the finding was first seen. subject: the topic, group or id.
    evidence: the observation as a sentence.
    """

    kind: FindingKind
    instance: str
    subject: str
    evidence: str
    at_s: float

    def lines(self) -> list[str]:
        """Return the finding as lines of text."""
        where = f" ({self.instance})" if self.instance else ""
        return [
            f"{self.kind.name}{where}: {self.kind.title}",
            f"  seen: {self.evidence}",
            f"  why it matters: {self.kind.why}",
            f"  remedy: {self.kind.remedy} ({self.kind.section})",
        ]


_KINDS = (
    FindingKind(
        "offsets-outside-transaction",
        "offsets are committed outside of the transactions that write the output",
        "a crash between the two leaves one without the other, so records are doubled or lost",
        "send the offsets with sendOffsetsToTransaction, and turn every other commit off",
    ),
    FindingKind(
        "auto-commit",
        "a timer commits offsets, whether or not the output was written",
        "inputs committed too early are lost in a crash, and inputs not yet committed are doubled",
        "set enable.auto.commit=false, and commit offsets in the transaction that writes the "
        "output",
    ),
    FindingKind(
        "commit-before-output",
        "offsets are committed before the output is sent",
        "a crash between the two loses the output for good",
        "write first, and commit both in one transaction",
    ),
    FindingKind(
        "read-uncommitted",
        "transactional input is read uncommitted",
        "the application processes records of aborted transactions",
        "set isolation.level=read_committed, which is the default only of librdkafka",
    ),
    FindingKind(
        "no-group-fencing",
        "offsets are sent to the transaction without generation and member",
        "after a rebalance a paused instance still commits what the new owner processes again",
        "pass the consumer's group metadata to sendOffsetsToTransaction (KIP-447), or one "
        "transactional.id for each input partition",
    ),
    FindingKind(
        "refused-offsets",
        "a transaction is committed although its offsets were refused",
        "the output counts and its input does not, so the new owner of the partition writes the "
        "output again",
        "after a refused TxnOffsetCommit (STALE_MEMBER_EPOCH, ILLEGAL_GENERATION) abort, and seek "
        "to the committed offsets",
    ),
    FindingKind(
        "unstable-offset-fetch",
        "committed offsets are fetched without require_stable",
        "a new owner starts before offsets that are being committed, and processes them again",
        "set isolation.level=read_committed on a client that supports KIP-447",
    ),
    FindingKind(
        "shared-transactional-id",
        "one transactional.id is used by two instances at once",
        "they fence each other, and each start of one aborts the work of the other",
        "give each instance its own transactional.id",
    ),
    FindingKind(
        "random-transactional-id",
        "each start uses a new transactional.id, and nothing fences the old one",
        "the transaction of a dead or paused predecessor is neither ended nor fenced",
        "keep the transactional.id of an instance over its restarts, or pass the group metadata "
        "to sendOffsetsToTransaction",
    ),
    FindingKind(
        "acks-below-all",
        "output is written with acks below all",
        "acknowledged records are lost with their leader",
        "acks=all (and enable.idempotence=true)",
    ),
    FindingKind(
        "no-idempotence",
        "output is written without a producer id",
        "a retry after a lost answer writes the record twice",
        "use a transactional producer, with the offsets in its transactions. "
        "enable.idempotence=true alone does not help if the application crashes between "
        "output and offsets",
    ),
    FindingKind(
        "plain-producer",
        "output is written by a producer outside of the transactions",
        "an abort removes only a part of the output",
        "use one producer for all output, after init_transactions",
    ),
    FindingKind(
        "retry-in-fresh-producer",
        "records whose answer was lost are sent again by a new producer",
        "its sequence numbers begin anew, so brokers do not detect the duplicate",
        "keep the producer and let it retry. After a fatal error, begin at the committed "
        "offsets, with a new producer of the same transactional.id",
    ),
    FindingKind(
        "transaction-too-long",
        "transactions stay open longer than their timeout or a timeout of their consumer",
        "the coordinator aborts them, or the group assigns the partitions to another member "
        "meanwhile",
        "use smaller transactions, or a larger transaction.timeout.ms and max.poll.interval.ms",
    ),
    FindingKind(
        "abort-without-seek",
        "after an abort, the application continues to read instead of seeking back",
        "the input of the aborted transaction is never processed, so it is lost",
        "after abort_transaction, seek to the committed offsets",
    ),
    FindingKind(
        "passed-over",
        "offsets are committed beyond what was written",
        "inputs below these offsets without an output are lost with their instance or batch",
        "commit an offset only after the outputs of all inputs below it are written. Seek "
        "back for dropped inputs",
    ),
    FindingKind(
        "commit-before-produce",
        "a transaction is committed before all of its batches are answered",
        "a late batch is refused, or counts for the next transaction, so records are lost or in "
        "the wrong transaction",
        "wait for the answer of each Produce (flush), and then send EndTxn",
    ),
    FindingKind(
        "same-sequence-other-bytes",
        "a batch is sent again with the same sequence number and other records",
        "brokers take it for a duplicate, and acknowledge it without writing it, so records are "
        "lost or doubled",
        "when a batch is repeated, send the same bytes. For other records, use the next "
        "sequence number",
    ),
    FindingKind(
        "state-not-rebuilt",
        "an aggregate continues at the committed offset without reading its state",
        "after a restart or a rebalance, sums begin anew or continue from old numbers",
        "keep the state in a topic, in the same transaction, and read it when partitions "
        "are assigned",
    ),
    FindingKind(
        "sink-not-atomic",
        "rows and the record of written rows are not in one database transaction",
        "a crash between the two leaves a row that is written again, or a record without its row",
        "write the row and the offset (or the id) in one transaction, or upsert by the input's id",
    ),
    FindingKind(
        "v1-late-requests",
        "transactions of version 1 are used on brokers that accept late requests (KAFKA-17754)",
        "a delayed EndTxn may end the next transaction",
        "use a client with transaction version 2 (KIP-890), or brokers that refuse late requests",
        "exposed",
    ),
    FindingKind(
        "min-insync-1",
        "min.insync.replicas is 1, so acks=all may mean one copy",
        "the loss of one disk loses acknowledged records",
        "use replication factor 3 and min.insync.replicas=2",
        "exposed",
    ),
)
CATALOGUE = {kind.name: kind for kind in _KINDS}
ORDER = {name: place for place, name in enumerate(CATALOGUE)}
