"""Rules about writing output, such as acks, idempotence, transactions, and new producers."""

from collections import defaultdict

from .rule import FindingRule, Recent, Tell
from .seen import (
    Keyed,
    SeenClosed,
    SeenEnded,
    SeenOpened,
    SeenProduce,
    SeenProduced,
    SeenTxnOffsetCommit,
    Sighting,
)
from .sequence_rules import BatchKey, key_of
from .unanswered import UnansweredProduces

BATCHES_MIN = 3  # of a topic, before its producer is judged
BESIDE_MIN = 2
TRANSACTIONS_MIN = 3
ALL = -1


def is_internal(topic: str) -> bool:
    return topic.startswith("__")


class ProducerSettings(FindingRule):
    """The rules acks-below-all and no-idempotence.

    They are violated by BATCHES_MIN batches to one topic with the same acks, which are not all, or
    without a producer id.
    """

    def __init__(self) -> None:
        self._weak = defaultdict[tuple[str, int], int](int)
        self._plain = defaultdict[str, int](int)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if not isinstance(seen, SeenProduce):
            return
        for batch in seen.batches:
            topic = batch.partition[0]
            if is_internal(topic):
                continue
            self._weak[topic, seen.acks] += seen.acks != ALL
            self._plain[topic] += batch.producer_id < 0
            if (weak := self._weak[topic, seen.acks]) >= BATCHES_MIN:
                text = f"{weak} batches to {topic} with acks={seen.acks}"
                tell("acks-below-all", seen, topic, text)
            if (plain := self._plain[topic]) >= BATCHES_MIN:
                tell(
                    "no-idempotence",
                    seen,
                    topic,
                    f"{plain} batches to {topic} without a producer id",
                )


class PlainProducer(FindingRule):
    """The rule that an instance must not write batches outside of transactions.

    The rule is violated if the instance also writes the topic in transactions. It is also violated
    if the instance writes all output outside of transactions, and only offsets in transactions.
    """

    def __init__(self) -> None:
        self._transactional = defaultdict[str, set[str]](set)  # topics, by instance
        self._plain = defaultdict[tuple[str, str], int](int)  # by instance and topic
        self._with_offsets = Recent[tuple[str, str], None]()
        self._empty = defaultdict[str, int](int)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            for batch in seen.batches:
                topic = batch.partition[0]
                if batch.is_transactional:
                    self._transactional[seen.instance].add(topic)
                elif not is_internal(topic):
                    self._plain[seen.instance, topic] += 1
                self._judge(seen, topic, tell)
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._with_offsets.put((seen.instance, seen.transactional_id), None)
        elif isinstance(seen, SeenEnded) and seen.is_commit:
            transaction = (seen.instance, seen.transactional_id)
            self._empty[seen.instance] += transaction in self._with_offsets
            self._with_offsets.pop(transaction)

    def _judge(self, seen: SeenProduce, topic: str, tell: Tell) -> None:
        plain, written = self._plain[seen.instance, topic], self._transactional[seen.instance]
        if topic in written and plain >= BESIDE_MIN:
            text = f"{plain} batches to {topic} outside of the transactions that write it, too"
            tell("plain-producer", seen, topic, text)
        elif (
            not written
            and plain >= BATCHES_MIN
            and self._empty[seen.instance] >= (TRANSACTIONS_MIN)
        ):
            text = f"{plain} batches to {topic} outside of transactions, which carry offsets only"
            tell("plain-producer", seen, topic, text)


class FreshProducer(FindingRule):
    """The rule that another producer of the same process must not send unanswered records again.

    It is about producers without a transactional id, as `FreshTransaction` has a rule for the
    others. The process counts as the same if one of its earlier connections is still open.
    Otherwise the instance was restarted.
    """

    def __init__(self) -> None:
        self._unanswered = UnansweredProduces()
        self._open = defaultdict[str, set[int]](set)
        # By instance, topic and record: its batch, and the instance's other open connections.
        self._uncertain = Recent[tuple[str, str, Keyed], tuple[BatchKey, frozenset[int]]]()
        # Batches of which any attempt was acknowledged.
        self._written = Recent[BatchKey, None]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenOpened):
            self._open[seen.instance].add(seen.connection)
        elif isinstance(seen, SeenClosed):
            self._open[seen.instance].discard(seen.connection)
            for sent in self._unanswered.closed(seen.connection):
                self._is_unanswered(sent)
        elif isinstance(seen, SeenProduced):
            sent = self._unanswered.answered(seen)
            if sent is not None and not (seen.is_known or seen.is_refused):
                self._is_unanswered(sent)
            elif sent is not None and not seen.has_error:
                self._is_written(sent)
        elif isinstance(seen, SeenProduce) and not seen.transactional_id:
            self._sent(seen, tell)

    def _is_unanswered(self, sent: SeenProduce) -> None:
        others = frozenset(self._open[sent.instance] - {sent.connection})
        for batch in sent.batches:
            if (key := key_of(batch)) is not None and key not in self._written:
                for record in batch.records:
                    place = (sent.instance, batch.partition[0], record)
                    self._uncertain.put(place, (key, others))

    def _is_written(self, sent: SeenProduce) -> None:
        """Forget records that their producer has sent again with success.

        A producer that raises its epoch sends them again with other sequence numbers.
        """
        for batch in sent.batches:
            if (key := key_of(batch)) is not None:
                self._written.put(key, None)
            for record in batch.records if len(self._uncertain) else ():
                place = (sent.instance, batch.partition[0], record)
                known = self._uncertain.get(place)
                if known is not None and known[0][0] == batch.producer_id:
                    self._uncertain.pop(place)

    def _sent(self, seen: SeenProduce, tell: Tell) -> None:
        for batch in seen.batches:
            for record in batch.records:
                known = self._uncertain.get((seen.instance, batch.partition[0], record))
                before, others = known or (None, frozenset[int]())
                if before is None or batch.producer_id in (before[0], -1):
                    continue
                if others & self._open[seen.instance] and before not in self._written:
                    topic = batch.partition[0]
                    tell(
                        "retry-in-fresh-producer",
                        seen,
                        topic,
                        f"a record for {topic} that producer {before[0]} had no answer "
                        f"for is sent again by producer {batch.producer_id}",
                    )
        self._unanswered.sent(seen)
