"""Rules about batches and sequence numbers at the end of a transaction, and in repeated batches."""

from collections import defaultdict
from itertools import count
from typing import NamedTuple

from .rule import FindingRule, Recent, Tell
from .seen import (
    Keyed,
    Partition,
    SeenClosed,
    SeenEnded,
    SeenEndRefused,
    SeenEndTxn,
    SeenFetch,
    SeenInit,
    SeenJoin,
    SeenOffsetFetch,
    SeenOpened,
    SeenProduce,
    SeenProduced,
    SeenVerdict,
    SentBatch,
    Sighting,
)

IN_FLIGHT_MAX = 2_000
RECORDS_MAX = 10_000  # of a transaction
BatchKey = tuple[int, int, Partition, int]  # producer id, epoch, partition, base sequence


def key_of(batch: SentBatch) -> BatchKey | None:
    """Return the producer id, epoch and sequence that identify a batch, or None without them."""
    if batch.producer_id < 0 or batch.base_sequence < 0:
        return None
    return batch.producer_id, batch.epoch, batch.partition, batch.base_sequence


class CommitBeforeProduce(FindingRule):
    """The rule that a commit must not be sent before all batches of its transaction are answered.

    A batch counts as answered when any attempt was answered, since the connection of an earlier
    attempt may still be open. A batch also counts as answered when the connection of its last
    attempt was closed. Each instance is judged alone, because a zombie may use the same id.
    """

    def __init__(self) -> None:
        self._sent = Recent[tuple[int, int], SeenProduce](IN_FLIGHT_MAX)
        # By instance and id: batches, and the connection on which each was sent last.
        self._open = defaultdict[tuple[str, str], dict[BatchKey, int]](dict[BatchKey, int])

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce) and seen.transactional_id:
            self._sent.put((seen.connection, seen.number), seen)
            waiting = self._open[seen.instance, seen.transactional_id]
            waiting |= {key: seen.connection for key in keys_of(seen)}
        elif isinstance(seen, SeenProduced):
            sent = self._sent.pop((seen.connection, seen.number))
            if sent is not None and (seen.is_known or seen.has_error):
                waiting = self._open[sent.instance, sent.transactional_id]
                for key in keys_of(sent):
                    waiting.pop(key, None)
        elif isinstance(seen, SeenClosed):
            for waiting in self._open.values():
                for key in [key for key, at in waiting.items() if at == seen.connection]:
                    del waiting[key]
        elif isinstance(seen, SeenInit):
            self._open.pop((seen.instance, seen.transactional_id), None)
        elif isinstance(seen, SeenEndTxn):
            waiting = self._open.pop((seen.instance, seen.transactional_id), None)
            if waiting and seen.is_commit:
                _, _, (topic, index), sequence = next(iter(waiting))
                tell(
                    "commit-before-produce",
                    seen,
                    seen.transactional_id,
                    f"{seen.transactional_id}: EndTxn was sent, and a batch for {topic}/{index} "
                    f"(sequence number {sequence}) had no answer",
                )


class OtherBytes(FindingRule):
    """The rule that a retry with the same id, epoch and sequence number has the same records.

    There is no finding after an error, since a refused batch has not used its sequence number. The
    decoded records of both attempts are compared, since the same records may be encoded in another
    way. If the transaction of the first attempt was aborted, the finding waits for wrong outputs.
    librdkafka gives the sequence numbers of dropped batches to the next transaction, and brokers
    refuse its batch unless both have the same number of records.
    """

    def __init__(self) -> None:
        self._sent = Recent[tuple[int, int], SeenProduce](IN_FLIGHT_MAX)
        self._batches = Recent[BatchKey, SentBatch]()
        self._open = defaultdict[tuple[str, str], set[BatchKey]](set)  # of the transaction
        self._aborted = Recent[BatchKey, None]()
        self._reused = Recent[BatchKey, tuple[SeenProduce, SentBatch, str]]()  # after an abort

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._sent.put((seen.connection, seen.number), seen)
            for batch in seen.batches:
                if (key := key_of(batch)) is not None:
                    self._compare(seen, key, batch, tell)
                    batches = self._open[seen.instance, seen.transactional_id]
                    if seen.transactional_id and len(batches) < RECORDS_MAX:
                        batches.add(key)
        elif isinstance(seen, SeenEndTxn):
            batches = self._open.pop((seen.instance, seen.transactional_id), set())
            for key in () if seen.is_commit else batches:
                self._aborted.put(key, None)
        elif isinstance(seen, SeenVerdict) and seen.is_wrong:
            for (*_, (topic, _), _), (sent, _, evidence) in self._reused.items():
                tell("same-sequence-other-bytes", sent, topic, evidence)
        elif isinstance(seen, SeenProduced):
            sent = self._sent.pop((seen.connection, seen.number))
            for key in keys_of(sent) if sent is not None and seen.has_error else ():
                self._batches.pop(key)
                reused = self._reused.get(key)
                if reused is not None and reused[0] is sent:  # it may be sent again
                    self._reused.pop(key)
                    self._batches.put(key, reused[1])
                    self._aborted.put(key, None)

    def _compare(self, seen: SeenProduce, key: BatchKey, batch: SentBatch, tell: Tell) -> None:
        before, is_after_abort = self._batches.get(key), key in self._aborted
        self._batches.put(key, batch)
        self._aborted.pop(key)
        if before is None or before.crc == batch.crc or not before.records or not batch.records:
            return
        if sorted(before.records) != sorted(batch.records):
            topic, index = batch.partition
            evidence = (
                f"producer {batch.producer_id}, epoch {batch.epoch}, sequence number "
                f"{batch.base_sequence} of {topic}/{index}: sent again with other records (CRC "
                f"{before.crc:08x}, then {batch.crc:08x})"
            )
            if is_after_abort and len(before.records) != len(batch.records):
                return
            if is_after_abort:
                self._reused.put(key, (seen, before, evidence))
            else:
                tell("same-sequence-other-bytes", seen, topic, evidence)


class FreshTransaction(FindingRule):
    """The rule retry-in-fresh-producer.

    The rule is violated if a process has no answer to the commit of a transaction, and writes
    records of this transaction again under another transactional id, or under the same id after a
    new InitProducerId. Other ids that the process used before the commit are excluded, because its
    other producers may write equal records. A restarted process is excluded, because it does not
    know of the commit. There is no finding if the process fetched offsets in between, or began to
    read a topic that it writes, which may hold its positions. They show whether the transaction was
    committed.
    """

    def __init__(self) -> None:
        self._written = defaultdict[tuple[str, str], set[Keyed]](set)
        self._ending = defaultdict[str, dict[str, _Ending]](dict[str, _Ending])
        self._numbers = count()
        self._outputs = defaultdict[str, set[str]](set)  # topics, by instance
        self._read_to = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        # When an id of an instance was first seen, and when it got its last InitProducerId.
        self._first = Recent[tuple[str, str], int]()
        self._begun = Recent[tuple[str, str], int]()
        self._open = defaultdict[str, set[int]](set)  # connections, by instance

    def see(self, seen: Sighting, tell: Tell) -> None:
        who = seen.instance
        if isinstance(seen, SeenProduce) and seen.transactional_id:
            self._sent(seen, tell)
        elif isinstance(seen, SeenInit) and seen.transactional_id:
            self._begun.put((who, seen.transactional_id), next(self._numbers))
        elif isinstance(seen, SeenOpened):
            self._open[who].add(seen.connection)
        elif isinstance(seen, SeenClosed):
            self._open[who].discard(seen.connection)
        elif isinstance(seen, SeenEndTxn):
            written = self._written.pop((who, seen.transactional_id), set())
            if seen.is_commit and written:
                others = frozenset(self._open[who] - {seen.connection})
                ending = _Ending(written, next(self._numbers), others)
                self._ending[who][seen.transactional_id] = ending
        elif isinstance(seen, (SeenEnded, SeenEndRefused)):
            self._ending[who].pop(seen.transactional_id, None)
        elif isinstance(seen, SeenFetch):
            self._fetched(seen)
        elif isinstance(seen, (SeenJoin, SeenOffsetFetch)):
            self._ending.pop(who, None)

    def _fetched(self, seen: SeenFetch) -> None:
        """Excuse an instance that begins to read a topic that it writes, or reads it again."""
        who, read_to = seen.instance, self._read_to[seen.instance]
        for partition, offset in seen.positions:
            if partition[0] in self._outputs[who] and offset < read_to.get(partition, offset + 1):
                self._ending.pop(who, None)
            read_to[partition] = offset

    def _sent(self, seen: SeenProduce, tell: Tell) -> None:
        who, name = seen.instance, seen.transactional_id
        self._outputs[who] |= {batch.partition[0] for batch in seen.batches}
        records = {record for batch in seen.batches for record in batch.records}
        number = self._first.setdefault((who, name), next(self._numbers))
        for before, ending in self._ending[who].items():
            again = len(ending.written & records)
            since = number if name != before else self._begun.get((who, name)) or 0
            if again and since > ending.number and ending.others & self._open[who]:
                topic = seen.batches[0].partition[0]
                tell(
                    "retry-in-fresh-producer",
                    seen,
                    topic,
                    f"{again} records of a transaction of {before}, whose commit had no answer, "
                    f"are written again by {name}",
                )
        written = self._written[who, name]
        if len(written) < RECORDS_MAX:
            written |= records


class _Ending(NamedTuple):
    """A commit request that was not answered.

    number: its number in a count of commits, InitProducerIds and the first uses of transactional
    ids. others: the other open connections of its instance when it was sent.
    """

    written: set[Keyed]
    number: int
    others: frozenset[int]


def keys_of(sent: SeenProduce) -> list[BatchKey]:
    return [key for batch in sent.batches if (key := key_of(batch)) is not None]
