"""Rules about batches and sequence numbers at the end of a transaction, and in repeated batches."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from .rule import OPEN_MAX, FindingRule, Recent, Tell
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
    SeenOffsetCommit,
    SeenOffsetFetch,
    SeenOpened,
    SeenProduce,
    SeenProduced,
    SeenRecords,
    SeenTxnOffsetCommit,
    SeenVerdict,
    SentBatch,
    Sighting,
)
from .unanswered import UnansweredProduces

RECORDS_MAX = 10_000  # of a transaction
WITH_NUMBER_MAX = 10  # batches with the same sequence number
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
        self._unanswered = UnansweredProduces()
        # By instance and id: batches, and the connection on which each was sent last.
        self._open = Recent[tuple[str, str], dict[BatchKey, int]](OPEN_MAX)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce) and seen.transactional_id:
            self._unanswered.sent(seen)
            waiting = self._open.setdefault((seen.instance, seen.transactional_id), {})
            waiting |= {key: seen.connection for key in keys_of(seen)}
        elif isinstance(seen, SeenProduced):
            sent = self._unanswered.answered(seen)
            if sent is not None and (seen.is_known or seen.has_error):
                waiting = self._open.get((sent.instance, sent.transactional_id)) or {}
                for key in keys_of(sent):
                    waiting.pop(key, None)
        elif isinstance(seen, SeenClosed):
            for _, waiting in self._open.items():
                for key in [key for key, at in waiting.items() if at == seen.connection]:
                    del waiting[key]
        elif isinstance(seen, SeenInit):
            self._open.pop((seen.instance, seen.transactional_id))
        elif isinstance(seen, SeenEndTxn):
            waiting = self._open.pop((seen.instance, seen.transactional_id))
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
    way.

    librdkafka gives the sequence numbers of batches that it dropped at an abort to the next
    transaction. A broker that has written the dropped batch takes the new one for a duplicate if
    both have the same number of records, and refuses it otherwise. Even the same records are lost
    then. So the finding needs wrong outputs if the transaction of the first attempt was aborted. It
    also needs that both were acknowledged, and that the second one's transaction was committed.
    """

    def __init__(self) -> None:
        self._unanswered = UnansweredProduces()
        self._batches = Recent[BatchKey, list[_Numbered]]()  # the last one last
        self._open = Recent[tuple[str, str], set[BatchKey]](OPEN_MAX)  # of the transaction

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._unanswered.sent(seen)
            at = Sighting(at_s=seen.at_s, instance=seen.instance, connection=seen.connection)
            batches = self._open.setdefault((seen.instance, seen.transactional_id), set())
            for batch in seen.batches:
                key = key_of(batch)
                if key is None or (len(batches) >= RECORDS_MAX and key not in batches):
                    continue  # its end would not be known
                if seen.transactional_id:
                    batches.add(key)
                self._compare(at, key, batch, tell)
        elif isinstance(seen, SeenProduced):
            sent = self._unanswered.answered(seen)
            for batch in sent.batches if sent is not None else ():
                self._answered(batch, seen.has_error)
        elif isinstance(seen, SeenEnded) and seen.is_commit:  # EndTxn may be refused, or not arrive
            for key in self._open.pop((seen.instance, seen.transactional_id)) or ():
                self._ended(key, is_commit=True)
        elif isinstance(seen, SeenInit) or (isinstance(seen, SeenEndTxn) and not seen.is_commit):
            for key in self._open.pop((seen.instance, seen.transactional_id)) or ():
                self._ended(key, is_commit=False)  # InitProducerId aborts, too
        elif isinstance(seen, SeenVerdict) and seen.is_wrong:
            for _, known in self._batches.items():
                if (before := _taken_for(known)) is not None:
                    _tell(
                        known[-1].sent,
                        "given to a later transaction, although a broker has written a batch of "
                        f"{before.sent.count} records with it, which was aborted",
                        tell,
                    )

    def _compare(self, at: Sighting, key: BatchKey, batch: SentBatch, tell: Tell) -> None:
        content = hash(tuple(sorted(batch.records))) if batch.records else None
        sent = _Sent(at, key, batch.crc, batch.count, content)
        known = self._batches.get(key) or []
        last = known[-1] if known else None
        if last is None or last.is_aborted or (last.is_refused and last.sent.crc != batch.crc):
            self._batches.put(key, [*known[1 - WITH_NUMBER_MAX :], _Numbered(sent)])
        elif last.sent.crc == batch.crc:
            last.is_refused = False
        else:
            before, last.sent = last.sent, sent
            _tell_of(before, sent, tell)

    def _answered(self, batch: SentBatch, has_error: bool) -> None:
        key = key_of(batch)
        known = self._batches.get(key) if key is not None else None
        for each in reversed(known or []):
            if each.sent.crc == batch.crc:
                each.is_written |= not has_error
                each.is_refused = not each.is_written
                return

    def _ended(self, key: BatchKey, *, is_commit: bool) -> None:
        if known := self._batches.get(key):
            known[-1].is_committed, known[-1].is_aborted = is_commit, not is_commit


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch as it was sent, with the number and the hash of its records instead of the records.

    Thousands of batches are remembered. `content` is None if the records are not known.
    """

    sighting: Sighting
    key: BatchKey
    crc: int
    count: int
    content: int | None


@dataclass(slots=True)
class _Numbered:
    """A batch with a producer id, epoch, partition and sequence number, in one transaction.

    is_written: a broker has acknowledged the batch. is_refused: its attempts had errors only.
    """

    sent: _Sent
    is_written: bool = False
    is_refused: bool = False
    is_aborted: bool = False
    is_committed: bool = False


def _taken_for(known: list[_Numbered]) -> _Numbered | None:
    """Return the aborted batch if a broker has taken the last, committed one for its duplicate."""
    last = known[-1]
    if not (last.is_written and last.is_committed):
        return None
    before = next((each for each in known if each.is_aborted and each.is_written), None)
    return before if before is not None and before.sent.count == last.sent.count else None


def _tell_of(before: _Sent, sent: _Sent, tell: Tell) -> None:
    """Report a batch if it has other records than an earlier batch, as far as they are known."""
    if None not in (before.content, sent.content) and before.content != sent.content:
        crcs = f"CRC {before.crc:08x}, then {sent.crc:08x}"
        _tell(sent, f"sent again with other records ({crcs})", tell)


def _tell(sent: _Sent, how: str, tell: Tell) -> None:
    producer_id, epoch, (topic, index), sequence = sent.key
    number = f"producer {producer_id}, epoch {epoch}, sequence number {sequence}"
    text = f"{number} of {topic}/{index}: {how}"
    tell("same-sequence-other-bytes", sent.sighting, topic, text)


class FreshTransaction(FindingRule):
    """The rule retry-in-fresh-producer.

    The rule is violated if a process has no answer to the commit of a transaction, and writes
    records of this transaction again under another transactional id, or under the same id after a
    new InitProducerId. Other ids that the process used before the commit are excluded, because its
    other producers may write equal records. A restarted process is excluded, because it does not
    know of the commit. There is no finding if the process fetched offsets in between, or read
    after InitProducerId a topic that it writes and whose offsets it does not commit, which may hold
    its positions. They show whether the transaction was committed. Plain commits of a group that
    the process has not joined do not count, since the timer of a client sends them by default.
    """

    def __init__(self) -> None:
        self._written = Recent[tuple[str, str], set[Keyed]](OPEN_MAX)
        self._ending = defaultdict[str, dict[str, _Ending]](dict[str, _Ending])
        self._numbers = count()
        # Topics by instance, and those whose offsets it commits, so they hold no positions.
        self._outputs = defaultdict[str, set[str]](set)
        self._inputs = defaultdict[str, set[str]](set)
        self._joined = set[tuple[str, str]]()  # instances and their groups
        self._initialized = dict[str, int]()  # the last InitProducerId of an instance
        # When an id of an instance was first seen, and when it got its last InitProducerId.
        self._first = Recent[tuple[str, str], int]()
        self._begun = Recent[tuple[str, str], int]()
        self._open = defaultdict[str, set[int]](set)  # connections, by instance

    def see(self, seen: Sighting, tell: Tell) -> None:
        who = seen.instance
        if isinstance(seen, SeenProduce) and seen.transactional_id:
            self._sent(seen, tell)
        elif isinstance(seen, SeenInit) and seen.transactional_id:
            self._initialized[who] = next(self._numbers)
            self._begun.put((who, seen.transactional_id), self._initialized[who])
        elif isinstance(seen, SeenTxnOffsetCommit) or (
            isinstance(seen, SeenOffsetCommit) and (who, seen.group) in self._joined
        ):
            self._inputs[who] |= {partition[0] for partition, _ in seen.offsets}
        elif isinstance(seen, SeenOpened):
            self._open[who].add(seen.connection)
        elif isinstance(seen, SeenClosed):
            self._open[who].discard(seen.connection)
            endings, still = self._ending[who], self._open[who]  # of processes that live
            self._ending[who] = {n: each for n, each in endings.items() if each.others & still}
        elif isinstance(seen, SeenEndTxn):
            written = self._written.pop((who, seen.transactional_id))
            if seen.is_commit and written:
                others = frozenset(self._open[who] - {seen.connection})
                ending = _Ending(written, next(self._numbers), others)
                self._ending[who][seen.transactional_id] = ending
        elif isinstance(seen, (SeenEnded, SeenEndRefused)):
            self._ending[who].pop(seen.transactional_id, None)
        elif isinstance(seen, SeenFetch):
            self._read(who, {partition[0] for partition, _ in seen.positions})
        elif isinstance(seen, SeenRecords):
            self._read(who, {seen.partition[0]})
        elif isinstance(seen, (SeenJoin, SeenOffsetFetch)):
            self._ending.pop(who, None)
            if isinstance(seen, SeenJoin):
                self._joined.add((who, seen.group))

    def _read(self, who: str, topics: set[str]) -> None:
        """Excuse an instance that reads a topic that it writes when its transactions have ended."""
        if topics & (self._outputs[who] - self._inputs[who]):
            endings, initialized = self._ending[who], self._initialized.get(who, 0)
            for name in [name for name, each in endings.items() if each.number < initialized]:
                del endings[name]

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
        written = self._written.setdefault((who, name), set())
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
