"""Rules about transactions that stay open too long, and aborts that lose their input."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from .rule import OPEN_MAX, FindingRule, Recent, Tell
from .seen import (
    Partition,
    SeenClosed,
    SeenEnded,
    SeenEndTxn,
    SeenFetch,
    SeenHeartbeat,
    SeenInit,
    SeenJoin,
    SeenOffsetFetch,
    SeenProduce,
    SeenRecords,
    SeenRequest,
    SeenTxnOffsetCommit,
    SeenWait,
    Sighting,
)

SILENT_S = 4.5  # members send a heartbeat every 3 s
LONG_MIN = 2
KEYS_MAX = 10_000
OPEN_OF_INSTANCE_MAX = 100
DEFAULT_TIMEOUT_MS = 60_000
ABORTS_MAX = 20  # that are watched, of an instance


@dataclass(slots=True)
class _Open:
    """An open transaction. With `is_excused` a fault may be the cause of its duration or abort."""

    since_s: float
    is_excused: bool = False
    beatless_s: float = 0.0  # the longest time without a heartbeat
    waits: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # apart
    connections: set[int] = field(default_factory=set[int])
    keys: set[int] = field(default_factory=set[int])
    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])

    def wait(self, begun_s: float, ended_s: float) -> None:
        """Record a wait for an answer, after it has ended. Waits may overlap."""
        begun_s = max(begun_s, self.since_s)
        while self.waits and self.waits[-1][1] >= begun_s:
            begun_s = min(begun_s, self.waits.pop()[0])
        self.waits.append((begun_s, ended_s))


@dataclass(frozen=True, slots=True)
class _Aborted:
    """An aborted transaction. `delivered_to` are the positions of the consumer at the abort.

    lost_from: offsets by partition; a commit of this offset or a higher one loses aborted inputs.
    """

    keys: set[int]
    delivered_to: dict[Partition, int]
    lost_from: dict[Partition, int]


@dataclass(slots=True)
class _Instance:
    last_sign_s: float | None = None
    session_ms: int | None = None
    rebalance_ms: int | None = None
    heartbeat_s: float | None = None  # the last one
    open: Recent[str, _Open] = field(
        default_factory=lambda: Recent[str, _Open](OPEN_OF_INSTANCE_MAX)
    )


class TooLong(FindingRule):
    """The rule that transactions must not be open for too long.

    A finding is reported from the second such transaction of a transactional id on.

    A transaction is too long if it exceeds its transaction timeout, its consumer's
    max.poll.interval.ms, or the session timeout without a heartbeat. Waits for a broker do not
    count. A transaction is excused if its instance was silent or lost a connection meanwhile, since
    the instance may have been paused, or have waited for another broker.
    """

    def __init__(self) -> None:
        self._instances = defaultdict[str, _Instance](_Instance)
        self._timeouts = Recent[str, int]()
        self._long = Recent[str, int]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        own = self._instances[seen.instance]
        if isinstance(seen, SeenRequest):
            self._sign(own, seen)
        elif isinstance(seen, SeenInit) and seen.transactional_id:
            if left := own.open.pop(seen.transactional_id):  # fenced, and begun anew
                self._ended(own, left, seen, tell)
            self._timeouts.put(seen.transactional_id, seen.timeout_ms)
        elif isinstance(seen, SeenJoin):
            own.session_ms, own.rebalance_ms = seen.session_ms, seen.rebalance_ms
            own.heartbeat_s = seen.at_s
            for _, each in own.open.items():
                each.beatless_s = 0.0
        elif isinstance(seen, SeenHeartbeat):
            own.heartbeat_s = seen.at_s
        elif isinstance(seen, SeenWait):
            for _, each in own.open.items():
                each.wait(seen.at_s - seen.waited_s, seen.at_s)
        elif isinstance(seen, SeenClosed):
            for _, each in own.open.items():
                each.is_excused |= seen.connection in each.connections
        elif isinstance(seen, (SeenProduce, SeenTxnOffsetCommit)):
            if seen.transactional_id:
                current = own.open.setdefault(seen.transactional_id, _Open(seen.at_s))
                current.connections.add(seen.connection)
        elif isinstance(seen, SeenEndTxn) and (ended := own.open.pop(seen.transactional_id)):
            self._ended(own, ended, seen, tell)

    def _sign(self, own: _Instance, seen: SeenRequest) -> None:
        if open_now := own.open.items():
            timeouts = [self._timeouts.get(name) or DEFAULT_TIMEOUT_MS for name, _ in open_now]
            silent_s = min(SILENT_S, min(timeouts) / 2000)
            if own.last_sign_s is not None and seen.at_s - own.last_sign_s > silent_s:
                for _, each in open_now:
                    each.is_excused = True
            if own.heartbeat_s is not None:
                for _, each in open_now:
                    beatless_s = seen.at_s - max(own.heartbeat_s, each.since_s)
                    each.beatless_s = max(each.beatless_s, beatless_s)
        own.last_sign_s = seen.at_s

    def _ended(self, own: _Instance, ended: _Open, seen: SeenEndTxn | SeenInit, tell: Tell) -> None:
        waits_s = [end_s - begun_s for begun_s, end_s in ended.waits]
        name, open_s = seen.transactional_id, seen.at_s - ended.since_s - sum(waits_s)
        beatless_s = ended.beatless_s - max(waits_s, default=0.0)
        if ended.is_excused:
            return
        timeout_s = (self._timeouts.get(name) or DEFAULT_TIMEOUT_MS) / 1000
        if open_s > timeout_s:
            reason = f"its timeout is {timeout_s:g} s"
        elif own.rebalance_ms is not None and open_s > own.rebalance_ms / 1000:
            reason = f"its consumer may stay away from poll for {own.rebalance_ms / 1000:g} s"
        elif own.session_ms is not None and beatless_s > own.session_ms / 1000:
            reason = (
                f"its consumer sent no heartbeat for {beatless_s:.1f} s, and its session is "
                f"{own.session_ms / 1000:g} s"
            )
        else:
            return
        self._long.put(name, long := self._long.setdefault(name, 0) + 1)
        if long >= LONG_MIN:
            tell(
                "transaction-too-long", seen, name, f"{name} was open for {open_s:.1f} s; {reason}"
            )


class AbortWithoutSeek(FindingRule):
    """The rule that after an abort the inputs are read again before a later commit of offsets.

    The rule is violated if a later transaction that writes output commits offsets past inputs of
    the aborted one, which the consumer has not fetched again. There is no finding in the following
    cases. Keys of these inputs were written again. No key of an input is known, so the instance may
    have kept and written the inputs again under other keys. The commit is only of other partitions.
    The group was rebalanced, the offsets were fetched again, or the instance sent InitProducerId.
    """

    def __init__(self) -> None:
        self._open = Recent[tuple[str, str], _Open](OPEN_MAX)
        self._read_to = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        self._delivered_to = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        self._aborted = defaultdict[str, list[_Aborted]](list[_Aborted])  # by instance
        self._places = defaultdict[str, Recent[int, tuple[Partition, int]]](Recent)  # of keys

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            if seen.transactional_id:
                self._produced(seen)
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._of(seen, seen.transactional_id).offsets.update(seen.offsets)
        elif isinstance(seen, (SeenJoin, SeenOffsetFetch)):
            for known in (self._aborted, self._read_to, self._delivered_to, self._places):
                known.pop(seen.instance, None)
            self._excuse(seen.instance)
        elif isinstance(seen, SeenInit):
            self._open.pop((seen.instance, seen.transactional_id))
            self._aborted.pop(seen.instance, None)
        elif isinstance(seen, SeenFetch):
            self._fetched(seen)
        elif isinstance(seen, SeenRecords):
            self._delivered_to[seen.instance][seen.partition] = seen.end_offset
            if not seen.keys:  # keys may come again, and the places of these are not known
                self._places.pop(seen.instance, None)
            for offset, key in seen.keys:
                self._places[seen.instance].put(key, (seen.partition, offset))
        elif isinstance(seen, SeenEnded):
            self._ended(seen, tell)

    def _of(self, seen: Sighting, name: str) -> _Open:
        return self._open.setdefault((seen.instance, name), _Open(seen.at_s))

    def _produced(self, seen: SeenProduce) -> None:
        keys = {key for batch in seen.batches for key, _ in batch.records}
        aborted = self._aborted[seen.instance]
        aborted[:] = [each for each in aborted if not keys & each.keys]  # others are tried again
        known = self._of(seen, seen.transactional_id).keys
        if len(known) < KEYS_MAX:
            known |= keys

    def _fetched(self, seen: SeenFetch) -> None:
        read_to, aborted = self._read_to[seen.instance], self._aborted[seen.instance]
        delivered_to = self._delivered_to[seen.instance]
        for partition, offset in seen.positions:
            # An answer with records after the abort may be dropped, and is asked for again.
            is_back = offset < read_to.get(partition, -1)
            aborted[:] = [
                each
                for each in aborted
                if not is_back and offset >= each.delivered_to.get(partition, -1)
            ]
            if is_back or offset < delivered_to.get(partition, -1):
                self._excuse(seen.instance)
            read_to[partition] = offset

    def _excuse(self, instance: str) -> None:
        """Excuse the instance's open transactions, because an abort of them loses no input."""
        for (own, _), each in self._open.items():
            each.is_excused |= own == instance

    def _ended(self, seen: SeenEnded, tell: Tell) -> None:
        ended = self._open.pop((seen.instance, seen.transactional_id))
        if ended is None:
            return
        aborted = self._aborted[seen.instance]
        if not seen.is_commit:
            if self._read_to.get(seen.instance) and not ended.is_excused:
                self._taken_back(seen.instance, ended.keys)
            return
        for lost in [each for each in aborted if ended.keys and _passes_over(ended.offsets, each)]:
            aborted.remove(lost)
            tell(
                "abort-without-seek",
                seen,
                seen.transactional_id,
                f"{seen.transactional_id} aborted {len(lost.keys)} records, none was read or "
                "written again, and a later transaction committed offsets past them",
            )

    def _taken_back(self, instance: str, keys: set[int]) -> None:
        lost_from = dict[Partition, int]()
        for partition, offset in filter(None, map(self._places[instance].get, keys)):
            lost_from[partition] = min(lost_from.get(partition, offset + 1), offset + 1)
        if lost_from:
            aborted = self._aborted[instance]
            aborted.append(_Aborted(keys, dict(self._delivered_to[instance]), lost_from))
            del aborted[:-ABORTS_MAX]


def _passes_over(committed: Mapping[Partition, int], lost: _Aborted) -> bool:
    return any(committed.get(each, -1) >= offset for each, offset in lost.lost_from.items())
