"""Rules that need the judgement of the outputs, and apply only to wrong outputs."""

from collections import defaultdict
from dataclasses import dataclass, field

from .rule import OPEN_MAX, REMEMBERED_MAX, FindingRule, Recent, Tell
from .seen import (
    Input,
    Partition,
    SeenEnded,
    SeenFetch,
    SeenInit,
    SeenJoin,
    SeenOffsetCommit,
    SeenOffsetFetch,
    SeenProduce,
    SeenProduced,
    SeenRecords,
    SeenTxnOffsetCommit,
    SeenVerdict,
    Sighting,
)
from .unanswered import UnansweredProduces

PASSED_MIN = 3
INPUTS_MAX, PARTITIONS_MAX = 5_000, 100  # that are not committed, of a partition and an instance
Output = tuple[str, int]  # its topic and its key
Place = tuple[str, str]  # an instance and its transactional id
Read = tuple[str, Partition]  # a group and a partition


class StateNotRebuilt(FindingRule):
    """The rule that a new owner of a partition restores the state of the former owner.

    The rule is violated if final values are wrong, and a new owner read nothing but input records
    from the committed offsets on.
    """

    def __init__(self) -> None:
        self._joined = set[tuple[str, str]]()
        self._from = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        self._read = defaultdict[str, set[str]](set)  # topics, by instance
        self._rebuilds = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenJoin):
            self._joined.add((seen.instance, seen.group))
        elif isinstance(seen, SeenOffsetFetch):
            if (seen.instance, seen.group) in self._joined:
                taken = {p: offset for p, offset in seen.offsets if offset > 0}
                self._from[seen.instance].update(taken)
        elif isinstance(seen, SeenFetch):
            for partition, offset in seen.positions:
                self._read[seen.instance].add(partition[0])
                if offset < self._from[seen.instance].get(partition, 0):
                    self._rebuilds.add(seen.instance)
        elif isinstance(seen, SeenVerdict) and seen.wrong_finals:
            self._judge(seen, tell)

    def _judge(self, seen: SeenVerdict, tell: Tell) -> None:
        for instance, taken in self._from.items():
            others = self._read[instance] - {topic for topic, _ in taken}
            if taken and not others and instance not in self._rebuilds:
                (topic, index), offset = next(iter(taken.items()))
                text = (
                    f"{seen.wrong_finals} final values are wrong; {instance or 'an instance'} took "
                    f"over {topic}/{index} at offset {offset}, and read neither a topic of state "
                    "nor earlier offsets"
                )
                tell("state-not-rebuilt", seen, topic, text)


@dataclass(slots=True)
class _Open:
    """An open transaction, with its offsets and outputs.

    outputs: each with the number of its last Produce. is_unknown: it has further outputs.
    """

    sent: dict[Read, int] = field(default_factory=dict["Read", int])
    outputs: Recent[Output, tuple[int, int]] = field(default_factory=Recent)
    refused: Recent[Output, None] = field(default_factory=Recent)
    is_unknown: bool = False


class PassedOver(FindingRule):
    """The rule that an instance must not commit offsets past an input without an output.

    The rule is violated if at least three inputs are lost for which all of the following holds. An
    instance fetched the input, had no rebalance after it, and committed its offset in a
    transaction, but committed no output for it. Inputs below an earlier committed offset do not
    count, since they may have been processed before. Neither do outputs of aborted transactions and
    of refused Produces. An output is recognised by the key of its input, so there is no finding if
    no output has the key of an input of the same topic, and none for a transaction whose outputs
    are not all known. The finding is abort-without-seek if the instance has also aborted a
    transaction, and passed-over otherwise. It is always passed-over if all these outputs were
    refused, and for an instance that often writes outputs after it has committed their inputs. (The
    abort of a transaction without records cannot be seen, so aborts of other transactions count.)
    """

    def __init__(self) -> None:
        # By instance and partition: the keys of its inputs, by offset.
        self._inputs = defaultdict[str, Recent[Partition, Recent[int, int]]](_inputs)
        self._position = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        self._written = defaultdict[str, Recent[int, None]](Recent)
        self._open = Recent[Place, _Open](OPEN_MAX)
        self._committed = defaultdict[Read, int](int)
        self._passed = Recent[Input, tuple[str, str, bool]]()  # ..., is_refused
        self._passed_keys = Recent[int, tuple[str, str]]()  # their instance and topic
        self._unanswered = UnansweredProduces()
        self._keeps_keys = set[str]()  # topics with an input whose key an output has had
        self._written_later = defaultdict[str, int](int)
        self._has_aborted = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        who = seen.instance
        if isinstance(seen, SeenFetch):
            self._position[who].update(seen.positions)
        elif isinstance(seen, SeenRecords):
            begin = self._position[who].get(seen.partition, 0)
            inputs = self._inputs[who].setdefault(seen.partition, Recent(INPUTS_MAX))
            for offset, key in seen.keys:
                if offset >= begin:
                    inputs.put(offset, key)
        elif isinstance(seen, SeenProduce):
            self._unanswered.sent(seen)
            self._produced(seen)
        elif isinstance(seen, SeenProduced):
            sent = self._unanswered.answered(seen)
            if sent is not None and seen.is_refused:
                self._was_refused(sent)
        elif isinstance(seen, SeenTxnOffsetCommit):
            sent = {(seen.group, partition): offset for partition, offset in seen.offsets}
            self._of(seen, seen.transactional_id).sent.update(sent)
        elif isinstance(seen, SeenJoin):
            self._inputs.pop(who, None)
            self._position.pop(who, None)
        elif isinstance(seen, SeenOffsetFetch):
            for partition, offset in seen.offsets:
                self._committed[seen.group, partition] = offset
        elif isinstance(seen, SeenInit):
            self._open.pop((who, seen.transactional_id))
        elif isinstance(seen, SeenEnded):
            if not seen.is_commit:
                self._has_aborted.add(who)
            self._ended(seen)
        elif isinstance(seen, SeenVerdict):
            self._judge(seen, tell)

    def _of(self, seen: Sighting, name: str) -> "_Open":
        return self._open.setdefault((seen.instance, name), _Open())

    def _produced(self, seen: SeenProduce) -> None:
        who, name = seen.instance, seen.transactional_id
        known = self._of(seen, name) if name else None
        for topic, key in _outputs(seen):
            if known is not None:
                known.outputs.put((topic, key), (seen.connection, seen.number))
                known.refused.pop((topic, key))
            else:
                self._written[who].put(key, None)
            passed = self._passed_keys.get(key)
            if passed is not None and passed[0] == who:
                self._written_later[who] += 1
                self._keeps_keys.add(passed[1])
        is_unknown = not all(batch.records for batch in seen.batches)
        if known is not None:
            known.is_unknown |= is_unknown or len(known.outputs) >= REMEMBERED_MAX
        elif is_unknown:
            self._inputs.pop(who, None)

    def _was_refused(self, sent: SeenProduce) -> None:
        """Take back the outputs of a refused Produce, unless they were sent again meanwhile."""
        known = self._open.get((sent.instance, sent.transactional_id))
        if known is None:
            return
        for output in _outputs(sent):
            if known.outputs.get(output) == (sent.connection, sent.number):
                known.outputs.pop(output)
                known.refused.put(output, None)

    def _ended(self, seen: SeenEnded) -> None:
        place = (seen.instance, seen.transactional_id)
        ended = self._open.pop(place)
        if not seen.is_commit:
            return
        if ended is None:  # it was forgotten, and its offsets and outputs are not known
            self._inputs.pop(seen.instance, None)
            return
        written = self._written[seen.instance]
        refused = {key for (_, key), _ in ended.refused.items()}
        for (_, key), _ in ended.outputs.items():
            if key not in refused:
                written.put(key, None)
        for (group, partition), end in ended.sent.items():
            first = self._committed[group, partition]  # inputs below may be processed already
            self._committed[group, partition] = end
            inputs = self._inputs[seen.instance].get(partition) or Recent()
            for offset, key in inputs.items():
                if offset >= end:
                    continue
                inputs.pop(offset)
                if key in written:
                    self._keeps_keys.add(partition[0])
                elif offset >= first and not ended.is_unknown:
                    self._passed.put((partition, offset), (*place, key in refused))
                    self._passed_keys.put(key, (seen.instance, partition[0]))

    def _judge(self, seen: SeenVerdict, tell: Tell) -> None:
        lost = [each for each in seen.lost_inputs if each[0][0] in self._keeps_keys]
        found = [(*known, each) for each in lost if (known := self._passed.get(each))]
        if len(found) >= PASSED_MIN:
            instance, name, _, ((topic, index), offset) = min(found)
            is_habit = self._written_later[instance] >= PASSED_MIN
            is_refused = all(each[2] for each in found)
            is_abort = instance in self._has_aborted and not is_habit and not is_refused
            reason = ", since their Produce was refused" if is_refused else ""
            tell(
                "abort-without-seek" if is_abort else "passed-over",
                seen,
                name,
                f"{len(found)} lost inputs were fetched, and transactions committed offsets past "
                f"them, but their outputs were not committed{reason}, e.g. of {topic}/{index} at "
                f"{offset}, committed by {instance or 'an instance'} with the transactional id "
                f"{name}",
            )


def _inputs() -> Recent[Partition, Recent[int, int]]:
    return Recent(PARTITIONS_MAX)


def _outputs(sent: SeenProduce) -> set[Output]:
    return {(batch.partition[0], key) for batch in sent.batches for key, _ in batch.records}


class OffsetsApart(FindingRule):
    """The rule offsets-outside-transaction, for applications that send no offsets in transactions.

    The rule is violated if outputs are wrong, and an instance that writes outputs sends plain
    OffsetCommits of the inputs. One commit is enough, because the outputs are wrong. `PlainCommits`
    has no judgement of the outputs, and therefore needs several commits.
    """

    def __init__(self) -> None:
        self._commits = dict[tuple[str, str, str], None]()  # group, topic and instance
        self._written = set[tuple[str, str]]()  # instance and topic
        self._has_transactions = self._sends_offsets = False

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._written |= {(seen.instance, batch.partition[0]) for batch in seen.batches}
            self._has_transactions |= any(batch.is_transactional for batch in seen.batches)
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._sends_offsets = True
        elif isinstance(seen, SeenOffsetCommit):
            for (topic, _), _ in seen.offsets:
                self._commits[seen.group, topic, seen.instance] = None
        elif isinstance(seen, SeenVerdict) and seen.is_wrong:
            if self._sends_offsets or seen.is_sink:
                return
            beside = (
                "no transaction that writes the output got offsets"
                if self._has_transactions
                else "the output is written without transactions; idempotence alone does not mend "
                "this"
            )
            writers = {
                instance
                for instance, topic in self._written
                if topic in seen.outputs or not seen.outputs
            }
            for group, topic, instance in self._commits:
                if topic in seen.inputs and instance in writers:
                    evidence = f"group {group}: OffsetCommit, and {beside}"
                    tell("offsets-outside-transaction", seen, group, evidence)


class SinkNotAtomic(FindingRule):
    """The rule that rows and offsets are committed together.

    The rule is violated if rows are doubled or lost, and the application writes nothing to Kafka.
    """

    def __init__(self) -> None:
        self._groups = set[str]()
        self._writes = False

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._writes = True
        elif isinstance(seen, (SeenOffsetCommit, SeenTxnOffsetCommit)):
            self._groups.add(seen.group)
        elif isinstance(seen, SeenVerdict) and seen.is_sink and (seen.doubled or seen.lost):
            if self._writes:
                return
            groups = f"group {', '.join(sorted(self._groups))}" if self._groups else "no group"
            text = f"{seen.doubled} rows doubled, {seen.lost} lost; {groups} committed offsets"
            tell("sink-not-atomic", seen, "sink", text)
