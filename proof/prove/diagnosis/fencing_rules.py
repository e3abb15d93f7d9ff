"""Rules about fencing, with group metadata, transactional ids, and ignored refusals."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from .rule import FindingRule, Recent, Tell
from .seen import (
    Partition,
    SeenAdd,
    SeenClosed,
    SeenEndTxn,
    SeenInit,
    SeenJoin,
    SeenOffsetFetch,
    SeenOffsetsRefused,
    SeenOpened,
    SeenProduce,
    SeenRequest,
    SeenTxnOffsetCommit,
    SeenWait,
    Sighting,
)

UNFENCED_MIN = 2
LIVE_WITHIN_S = 2.0  # below any session timeout; a longer silence may be a zombie's
USED_WITHIN_S = 15.0
SILENT_S = 4.5  # members send a heartbeat every 3 s
SHARED_MIN = 2
RESTARTS_MIN, LIVES_MAX = 2, 20
LOOKS_RANDOM = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}|[0-9a-f]{12}", re.IGNORECASE)
LAST_NUMBER = re.compile(r"(\d+)\D*$")


class GroupFencing(FindingRule):
    """The rules no-group-fencing and unstable-offset-fetch.

    Two cases are excluded. If each id belongs to one input partition (the method before KIP-447),
    InitProducerId of the partition's new owner fences the old owner, and ends its transaction. A
    consumer that assigns partitions itself has no generation, so instances that have not joined the
    group are excluded.
    """

    def __init__(self) -> None:
        self._joined = set[tuple[str, str]]()
        self._unfenced = Recent[tuple[str, str], int]()
        self._partitions = Recent[str, set[Partition]]()  # of an id
        self._ids = defaultdict[Partition, set[str]](set)  # two of them at most
        self._unstable = dict[str, SeenOffsetFetch]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenJoin):
            self._joined.add((seen.instance, seen.group))
        elif isinstance(seen, SeenOffsetFetch):
            if not seen.is_stable and (seen.instance, seen.group) in self._joined:
                self._unstable.setdefault(seen.group, seen)
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._sent(seen, tell)

    def _sent(self, seen: SeenTxnOffsetCommit, tell: Tell) -> None:
        name = seen.transactional_id
        for partition, _ in seen.offsets:
            self._partitions.setdefault(name, set()).add(partition)
            if len(self._ids[partition]) < 2:
                self._ids[partition].add(name)
        if (seen.instance, seen.group) not in self._joined:
            return
        unfenced = self._unfenced.setdefault((name, seen.group), 0) + (not seen.is_fenced)
        self._unfenced.put((name, seen.group), unfenced)
        if self._is_bound(name):
            return
        if unfenced >= UNFENCED_MIN:
            tell(
                "no-group-fencing",
                seen,
                seen.group,
                f"transactional id {name}: TxnOffsetCommit for group {seen.group} with generation "
                "-1 and no member",
            )
        if fetched := self._unstable.get(seen.group):
            tell(
                "unstable-offset-fetch",
                fetched,
                seen.group,
                f"group {seen.group} has its offsets in transactions (of {name}), and OffsetFetch "
                "asks without require_stable",
            )

    def _is_bound(self, name: str) -> bool:
        """Return whether an id has the number of its only input partition and owns it alone."""
        partitions = self._partitions.get(name) or ()
        if len(partitions) != 1:
            return False
        (partition,) = partitions
        number = LAST_NUMBER.search(name)
        return (
            self._ids[partition] == {name}
            and number is not None
            and (int(number[1]) == partition[1])
        )


class RefusedOffsets(FindingRule):
    """The rule that a client must not commit a transaction after its offsets were refused.

    It applies only if the client has received the error for its last TxnOffsetCommit of the group
    in this transaction. A client that sends the offsets again, or aborts, has handled the refusal,
    even if the error comes later.
    """

    def __init__(self) -> None:
        # Of an instance's id, by group: the last TxnOffsetCommit, and its refusal.
        self._sent = Recent[tuple[str, str], dict[str, SeenTxnOffsetCommit]]()
        self._refused = Recent[tuple[str, str], dict[str, SeenOffsetsRefused]]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenTxnOffsetCommit):
            place = (seen.instance, seen.transactional_id)
            self._sent.setdefault(place, {})[seen.group] = seen
            self._refused.setdefault(place, {}).pop(seen.group, None)
        elif isinstance(seen, SeenOffsetsRefused):
            place = (seen.instance, seen.transactional_id)
            sent = self._sent.setdefault(place, {}).get(seen.group)
            if sent and (sent.connection, sent.number) == (seen.connection, seen.number):
                self._refused.setdefault(place, {})[seen.group] = seen
        elif isinstance(seen, (SeenInit, SeenEndTxn)):
            place = (seen.instance, seen.transactional_id)
            refused = self._refused.pop(place) or {}
            self._sent.pop(place)
            for group, each in refused.items() if _is_commit(seen) else ():
                tell(
                    "refused-offsets",
                    seen,
                    group,
                    f"transactional id {seen.transactional_id}: TxnOffsetCommit for group {group} "
                    f"was refused ({each.error}), and EndTxn commits the rest",
                )


def _is_commit(seen: Sighting) -> bool:
    return isinstance(seen, SeenEndTxn) and seen.is_commit


class SharedIds(FindingRule):
    """The rule that two live instances must not use one transactional id by turns.

    It is a finding if the id changes twice from one instance to the other. An instance that was
    silent meanwhile, or waited for a silent broker, is a zombie and no finding.
    """

    def __init__(self) -> None:
        self._owner = Recent[str, str]()
        self._last_sign = dict[str, float]()
        self._last_wait = dict[str, float]()  # for a broker, longer than a session may be
        self._open = defaultdict[str, set[int]](set)  # connections of an instance
        self._taken = dict[tuple[str, str], float]()  # id and its owner before -> when
        self._used = defaultdict[str, int](int)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenRequest):
            silent_s = seen.at_s - self._last_sign.get(seen.instance, seen.at_s)
            self._last_sign[seen.instance] = seen.at_s
            if silent_s > SILENT_S:
                for key in [key for key in self._taken if key[1] == seen.instance]:
                    del self._taken[key]
        elif isinstance(seen, SeenWait):
            if seen.waited_s > SILENT_S:
                self._last_wait[seen.instance] = seen.at_s
        elif isinstance(seen, SeenOpened):
            self._open[seen.instance].add(seen.connection)
        elif isinstance(seen, SeenClosed):
            self._open[seen.instance].discard(seen.connection)
        elif isinstance(seen, SeenInit):
            self._begun(seen)
        elif isinstance(seen, (SeenAdd, SeenProduce, SeenTxnOffsetCommit, SeenEndTxn)):
            self._is_used(seen, seen.transactional_id, tell)

    def _begun(self, seen: SeenInit) -> None:
        name = seen.transactional_id
        if not name:
            return
        before = self._owner.get(name)
        self._owner.put(name, seen.instance)
        self._taken.pop((name, seen.instance), None)
        if before is None or before == seen.instance or not self._open[before]:
            return
        if seen.at_s - self._last_wait.get(before, float("-inf")) <= USED_WITHIN_S:
            return  # its coordinator may have timed it out meanwhile
        if seen.at_s - self._last_sign.get(before, float("-inf")) <= LIVE_WITHIN_S:
            self._taken[name, before] = seen.at_s

    def _is_used(self, seen: Sighting, name: str, tell: Tell) -> None:
        taken_s = self._taken.pop((name, seen.instance), None) if name else None
        if taken_s is None or seen.at_s - taken_s > USED_WITHIN_S:
            return
        self._used[name] += 1
        if self._used[name] >= SHARED_MIN:
            tell(
                "shared-transactional-id",
                seen,
                name,
                f"{seen.instance} and {self._owner.get(name)} both use {name}: {self._used[name]} "
                "times one initialized it while the other was alive, and the other used it again",
            )


@dataclass(slots=True)
class _Names:
    """The transactional ids of an instance, one for each start.

    An instance starts when it opens a connection and has no other. lives: the first id of each
    start. starts: their number. is_start: no id was initialized since the last start.
    """

    lives: list[str] = field(default_factory=list[str])
    connections: set[int] = field(default_factory=set[int])
    starts: int = 0
    is_start: bool = True


class RandomIds(FindingRule):
    """The rule that an instance without KIP-447 must not use a new transactional id each start."""

    def __init__(self) -> None:
        self._names = defaultdict[str, _Names](_Names)
        # By id: the instance that initialized it last, and the number of this instance's start.
        self._everywhere = Recent[str, tuple[str, int]]()
        self._is_fenced = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenTxnOffsetCommit):
            if seen.is_fenced:
                self._is_fenced.add(seen.instance)
            else:
                self._judge(seen, tell)
        elif isinstance(seen, SeenOpened):
            names = self._names[seen.instance]
            names.is_start = names.is_start or not names.connections
            names.connections.add(seen.connection)
        elif isinstance(seen, SeenClosed):
            self._names[seen.instance].connections.discard(seen.connection)
        elif isinstance(seen, SeenInit) and seen.transactional_id:
            self._begun(seen)
        elif isinstance(seen, SeenEndTxn):
            self._judge(seen, tell)

    def _begun(self, seen: SeenInit) -> None:
        names, name = self._names[seen.instance], seen.transactional_id
        names.starts += names.is_start
        start = (seen.instance, names.starts)
        before = self._everywhere.get(name)
        if before not in (None, start):  # in the same start, the client raises the epoch (KIP-360)
            names.lives.clear()  # the id is used again, so it is not random
        elif names.is_start:
            names.lives = [*names.lives[1 - LIVES_MAX :], name]
        names.is_start = False
        self._everywhere.put(name, start)

    def _judge(self, seen: Sighting, tell: Tell) -> None:
        """Report the instance if it used new ids at its starts and never sent offsets fenced.

        It is called at EndTxn, because a TxnOffsetCommit was seen before it, and at a
        TxnOffsetCommit without a generation.
        """
        lives = self._names[seen.instance].lives
        random = [name for name in lives if LOOKS_RANDOM.search(name)]
        restarts = max(len(lives) - 1, 0)
        if seen.instance in self._is_fenced or restarts < (1 if random else RESTARTS_MIN):
            return
        tell(
            "random-transactional-id",
            seen,
            seen.instance,
            f"{len(lives)} starts, {len(lives)} transactional ids, the last two "
            f"{lives[-2]} and {lives[-1]}",
        )
