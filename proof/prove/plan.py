"""The plan, which decides the faults of a run and their order.

The file does no I/O. The plan depends on the seed and on the observed requests, and never on which
application is tested. A fault at a random time proves little, since the application may be waiting.
Therefore faults are aimed at the next requests of an application, by the APIs that it uses. The
plan begins with the faults that break most applications. These are answers that are lost after the
request was executed, and a kill, or a pause beyond the session, at the commit of offsets. Between
these faults come the *sure* faults, such as slow, held or refused requests and a paused leader. A
run injects all of them that `sure_ones` returns, if need be after the time for faults.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ...deploy.cluster.failure import Failure

COMMITS = frozenset(("OffsetCommit", "TxnOffsetCommit"))
PRODUCE, END_TXN = frozenset(("Produce",)), frozenset(("EndTxn",))
# Of group.protocol=consumer the heartbeats that join, or report the member's partitions.
HEARTBEAT = frozenset(("ConsumerGroupHeartbeat",))
SYNC = HEARTBEAT | {"SyncGroup"}
FETCH, INIT = frozenset(("Fetch",)), frozenset(("InitProducerId",))
LOGIN = frozenset(("SaslHandshake",))
BEGIN = frozenset(("AddPartitionsToTxn",))  # of a transaction of version 1


class Act(Enum):
    KILL = "kill"  # -9
    KILL_AT_WORK = "kill-at-work"  # somewhere between two commits, while there is much to do
    PAUSE = "pause"  # until its group has continued without it
    PAUSE_AT_WORK = "pause-at-work"  # the same, right after inputs have come
    PAUSE_LONG = "pause-long"  # until its transaction has timed out
    LOSE_ANSWER = "lose-answer"
    ERROR = "error"  # the broker answers with an error
    SLOW = "slow"  # the request or its answer comes late, and the connection stays open
    STALL = "stall"  # the broker that got the request is paused, and resumes
    HOLD = "hold"  # the request, until its transaction has ended
    STOP = "stop"  # SIGTERM, and started again
    ADD = "add"
    REMOVE = "remove"  # SIGTERM
    CUT = "cut"  # its connections
    BROKER = "broker"  # kill -9 of the broker that got the request
    BROKER_BEHIND = "broker-behind"  # the same, when its followers did not get the record yet
    # On secured clusters, by the names of the same faults of chaos:
    CERTIFICATE = "certificate-expires"
    PASSWORD = "password-change"
    REAUTHENTICATION = "reauthentication-fails"
    ACL = "acl-taken"


class Point(Enum):
    BEFORE = "before"  # the broker has not seen the request
    DONE = "done"  # executed, and the client does not know; a killed client cannot react to it
    AFTER = "after"  # answered


IN_WORDS = {Point.BEFORE: "before its", Point.DONE: "at the executed", Point.AFTER: "after its"}


@dataclass(frozen=True, slots=True)
class AimedFault:
    """A kind of fault and its aim. The seed chooses values that are left empty.

    apis: the fault is injected at a request of one of these APIs, or without APIs whenever work is
    open. unless: the fault is not for an application that uses one of these APIs. needs: the fault
    is only for an application that uses all of these APIs. needs_brokers: the fault needs brokers
    of our own cluster. seconds: its duration. side: the message that is delayed, request or
    answer. refusal: the name of an error code. sure_tries: how often the fault is tried until a
    request matches, even after the time for faults.
    """

    act: Act
    apis: frozenset[str] = frozenset()
    point: Point | None = None
    about: str = ""
    instances_min: int = 1
    unless: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    seconds: float = 0.0
    side: str = ""
    refusal: str = ""
    sure_tries: int = 0

    @property
    def name(self) -> str:
        return "@".join(filter(None, (self.act.value, self.about)))

    @property
    def where(self) -> str:
        """Return text that says at which request the fault is injected."""
        return IN_WORDS[self.point or Point.BEFORE]

    @property
    def needs_rebalance(self) -> bool:
        """Return whether the fault's requests are only sent when members join or leave."""
        return self.apis == INIT or self.about == "OffsetFetch" or bool(self.apis & HEARTBEAT)

    @property
    def needs_brokers(self) -> bool:
        return self.act in (Act.BROKER, Act.BROKER_BEHIND, Act.STALL)

    @property
    def needs_tls(self) -> bool:
        return self.act is Act.CERTIFICATE

    @property
    def needs_user(self) -> bool:
        """Return whether the fault changes the user, or an ACL, of a cluster of ours."""
        return self.act in (Act.PASSWORD, Act.REAUTHENTICATION, Act.ACL)


@dataclass(frozen=True, slots=True)
class Traits:
    """The features that the application uses, as far as its requests have shown them."""

    apis: frozenset[str] = frozenset()
    instances: int = 1  # that run
    has_brokers: bool = False
    is_alone: bool = False  # no instance may be added
    has_tls: bool = False  # between the application and the proxy
    has_user: bool = False  # of its own, in a cluster of ours


# Output outside of Kafka is written between two commits, where there is no request to aim at.
AT_WORK = AimedFault(Act.KILL_AT_WORK, COMMITS, unless=PRODUCE)
AT_WORK_IN_A_ROW = 4
AT_COMMIT = AimedFault(Act.PAUSE, COMMITS, Point.BEFORE, "before-commit")
# An open transaction may time out before its group has continued, which would hide a lack of
# fencing. A transaction that begins when its sender wakes has its whole timeout left.
AT_BEGIN = AimedFault(Act.PAUSE, BEGIN, Point.BEFORE, "before-transaction")
ZOMBIE = (AT_COMMIT, AT_BEGIN)
FIRST = (
    AimedFault(Act.LOSE_ANSWER, END_TXN, None, "EndTxn"),
    AimedFault(Act.LOSE_ANSWER, frozenset(("OffsetCommit",)), None, "OffsetCommit"),
    AimedFault(Act.LOSE_ANSWER, frozenset(("TxnOffsetCommit",)), None, "TxnOffsetCommit"),
    AimedFault(Act.LOSE_ANSWER, PRODUCE, None, "Produce"),
    AimedFault(Act.KILL, COMMITS, Point.BEFORE, "before-commit"),
    AimedFault(Act.KILL, COMMITS, Point.DONE, "executed-commit"),
    AT_COMMIT,
    *(AT_WORK,) * 2 * AT_WORK_IN_A_ROW,
)
THEN = (
    AimedFault(Act.KILL, PRODUCE, Point.BEFORE, "before-produce"),
    AimedFault(Act.KILL, PRODUCE, Point.DONE, "executed-Produce"),
    AimedFault(Act.KILL, END_TXN, Point.BEFORE, "before-EndTxn"),
    AimedFault(Act.KILL, END_TXN, Point.DONE, "executed-EndTxn"),
    AimedFault(Act.KILL, SYNC, Point.BEFORE, "rebalance"),
    AimedFault(Act.PAUSE, PRODUCE, Point.BEFORE, "before-produce"),
    AimedFault(Act.PAUSE_LONG, END_TXN, Point.BEFORE, "before-EndTxn"),
    AimedFault(Act.ERROR, frozenset(("TxnOffsetCommit",)), None, "TxnOffsetCommit"),
    AimedFault(Act.STOP),
    AimedFault(Act.ADD),
    AimedFault(Act.REMOVE, instances_min=2),
    AimedFault(Act.CUT),
    AimedFault(Act.BROKER, PRODUCE, Point.DONE, "leader"),
    AimedFault(Act.BROKER, COMMITS, Point.DONE, "group"),
    AimedFault(Act.BROKER, END_TXN, Point.DONE, "txn"),
    AimedFault(Act.BROKER_BEHIND, PRODUCE, Point.AFTER, "leader"),
)
# An application that keeps its positions in a database is struck right after a fetch.
AFTER_FETCH = AimedFault(Act.KILL, FETCH, Point.AFTER, "after-Fetch", unless=PRODUCE | COMMITS)
MORE = (
    AFTER_FETCH,
    AimedFault(Act.PAUSE_AT_WORK, FETCH, Point.AFTER, unless=PRODUCE | COMMITS),
    AimedFault(Act.PAUSE, INIT, Point.BEFORE, "before-InitProducerId"),
    AimedFault(Act.LOSE_ANSWER, HEARTBEAT, None, "ConsumerGroupHeartbeat"),
    AimedFault(Act.PAUSE, HEARTBEAT, Point.BEFORE, "before-heartbeat"),
)
STALL = AimedFault(Act.STALL, PRODUCE, Point.BEFORE, "leader")
SLOW_PRODUCE = AimedFault(Act.SLOW, PRODUCE, None, "Produce")
SLOW_END = AimedFault(Act.SLOW, END_TXN, None, "EndTxn")
REFUSED_PRODUCE = AimedFault(Act.ERROR, PRODUCE, None, "Produce")
# The one after which librdkafka forgets the topic's partitions, and the one of a batch's records.
REFUSALS = ("INVALID_RECORD", "TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD")
SURE = (
    STALL,
    SLOW_PRODUCE,
    SLOW_END,
    AimedFault(Act.SLOW, frozenset(("OffsetCommit",)), None, "OffsetCommit"),
    AimedFault(Act.SLOW, frozenset(("TxnOffsetCommit",)), None, "TxnOffsetCommit"),
    AimedFault(Act.HOLD, PRODUCE, Point.BEFORE, "Produce", needs=END_TXN),
    REFUSED_PRODUCE,
    AimedFault(Act.ERROR, frozenset(("OffsetFetch",)), None, "OffsetFetch"),
)
# They are drawn apart, so that clusters without TLS and logins keep their plans.
SECURED = (
    AimedFault(Act.CERTIFICATE),
    AimedFault(Act.PASSWORD),
    AimedFault(Act.REAUTHENTICATION, LOGIN, Point.BEFORE, needs=END_TXN),
    AimedFault(Act.ACL, PRODUCE, Point.BEFORE, needs=END_TXN),
)
SECURED_CHOSEN = 2  # of a short run
ALL_FROM_S = 60.0  # of --seconds; below, the seed chooses
CHOSEN_MIN, CHOSEN_FROM_S = 3, 40.0  # one more from there on
SIDES = ("request", "answer")
SLOW_S, SHORT_S, LONG_S = (2.0, 15.0), (2.0, 6.0), (11.0, 15.0)
MIDDLE_S = (4.5, 8.0)
STALL_MIN_S, STALL_MAX_S, STALL_FROM_S = 12.0, 40.0, 30.0
LASTING = (Act.SLOW, Act.STALL)
SURE_TRIES = 2
SURE_BETWEEN = 2  # groups after each drawn fault, so that the time is enough for all of them
SURE_EXTRA_S = 45.0  # beyond --seconds, which the sure ones may take
FAULTS = {fault.name: fault for fault in (*FIRST, AT_BEGIN, *THEN, *MORE, *SURE, *SECURED)}
INSTANCES_MORE_MAX = 2  # that `add` brings beyond those that were asked for
PAUSES = (Act.PAUSE, Act.PAUSE_AT_WORK, Act.PAUSE_LONG)
AIM_MIN_S = 12.0
SHORT_SESSION_S = 6.0
AWAKE_S = 1.5  # the least time for a woken instance to finish its request before a fault strikes
SETTLE_S = 2.0  # the time of a rebalance by a new instance


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts of the application's clients, as the proxy forwards them to brokers.

    start_s: the time that the application needed to begin its work, and may need again after each
    end.
    """

    session_s: float = SHORT_SESSION_S
    transaction_s: float = 10.0
    start_s: float = 0.0

    @property
    def pause_max_s(self) -> float:
        """Return the longest wait for another instance to continue a paused instance's work.

        It begins after the least duration of the pause. A replacement has time to start in it.
        """
        return 2 * self.session_s + 4 + self.start_s

    def least_s(self, fault: AimedFault) -> float:
        """Return the least duration of a fault, or 0 if the duration is negligible."""
        if fault.act is Act.PAUSE_LONG:
            return self.transaction_s + SETTLE_S + AWAKE_S
        if fault.act in LASTING:
            return fault.seconds or (STALL_MAX_S if fault.act is Act.STALL else SLOW_S[1])
        return self.session_s + AWAKE_S if fault.act in PAUSES else 0.0

    @property
    def aim_s(self) -> float:
        """Return how long to wait for a request at which a fault is aimed.

        It covers the session of a killed member, for which a group may wait, and a restart.
        """
        return max(AIM_MIN_S, 1.5 * self.start_s + SETTLE_S, self.session_s + 2 * SETTLE_S)

    @property
    def silent_s(self) -> float:
        """Return after which time without requests an instance is neither starting nor a member."""
        return max(self.session_s, 1.5 * self.start_s + SETTLE_S)

    @property
    def still_s(self) -> float:
        """Return after which time an application that writes and commits nothing is restarted."""
        return self.aim_s - 1.0

    @property
    def longer_s(self) -> float:
        """Return by how much longer the end of a run may take because of long session timeouts.

        A group may wait for the session of a dead member, and again after a restart.
        """
        return 4 * max(0.0, self.session_s - SHORT_SESSION_S)

    @property
    def silence_s(self) -> float:
        """Return the time without changes of outputs and offsets after which the wait at the end of
        a run is over.

        It is long enough for a timeout to end an open transaction.
        """
        return max(self.session_s + self.transaction_s, self.still_s)


def lowered_timeouts(seconds: float) -> Timeouts:
    """Return the timeouts of a run of this many seconds, which are shorter than Kafka's defaults.

    A long run has faults that delay a Produce by 15 s, which its transaction must outlast.
    """
    return Timeouts(transaction_s=20.0 if seconds >= ALL_FROM_S else 10.0)


def draw(seed: int, *, is_secured: bool = False) -> Iterator[AimedFault]:
    """Yield FIRST and THEN, and after that MORE and all other faults again and again.

    Each time FIRST, THEN and the other faults are shuffled. is_secured: the other faults include
    those of secured clusters.
    """
    chance = random.Random(f"oncelog prove {seed}")
    yield from in_turn(chance.sample(FIRST, len(FIRST)))
    yield from chance.sample(THEN, len(THEN))
    while True:
        yield from MORE
        deck = FIRST + THEN + SURE + (SECURED if is_secured else ())
        yield from in_turn(chance.sample(deck, len(deck)))


def plan(
    seed: int,
    sure: list[list[AimedFault]],
    is_over: Callable[[], bool],
    *,
    is_secured: bool = False,
) -> Iterator[AimedFault]:
    """Yield faults in the order of `draw`, with sure faults in between, until `is_over`.

    After that all remaining sure faults are yielded. Each yielded group is removed from `sure`. The
    caller may append sure faults that found no request, so that they are tried again.
    """
    drawn = draw(seed, is_secured=is_secured)
    following = next(drawn)
    while not is_over():
        while True:  # faults that belong together stay together
            current, following = following, next(drawn)
            yield current
            if following not in (AT_WORK, AT_BEGIN):
                break
        for _ in range(min(SURE_BETWEEN, len(sure))):
            yield from sure.pop(0)
    while sure:
        yield from sure.pop(0)


def sure_ones(
    seed: int, seconds: float, traits: Traits, instances_wanted: int = 1
) -> list[list[AimedFault]]:
    """Return the sure faults, in groups that are injected together.

    They are those of SURE (such as slow requests) and those of secured clusters. A run of at least
    `ALL_FROM_S` seconds has all that match the application, and the pauses of `ZOMBIE` or, without
    commits, several kills after a Fetch. A shorter run has a few that the seed chooses.
    """
    chance = random.Random(f"oncelog prove sure {seed}")
    kinds = [fault for fault in SURE if is_possible(fault, traits, instances_wanted)]
    if is_short := seconds < ALL_FROM_S:
        fitting = [kind for kind in kinds if kind is not STALL or seconds >= STALL_FROM_S]
        count = CHOSEN_MIN + (seconds >= CHOSEN_FROM_S)
        chosen = chance.sample(fitting, min(count, len(fitting)))
        kinds = [kind for kind in kinds if kind in chosen]
    chosen = [
        replace(each, sure_tries=SURE_TRIES)
        for kind in kinds
        for each in _several(kind, seconds, chance, is_short)
    ]
    slow = sorted((each for each in chosen if each.act is Act.SLOW), key=lambda each: -each.seconds)
    groups = [[each] for each in chosen if each.act is not Act.SLOW]
    groups += [slow] if slow else []  # of different instances, at the same time; the longest first
    groups = chance.sample(groups, len(groups))
    if not is_short:
        if zombie := [fault for fault in ZOMBIE if is_possible(fault, traits, instances_wanted)]:
            # among the first, so that there is time for both
            place = random.Random(f"oncelog prove zombie {seed}").randint(0, len(groups) // 2)
            groups.insert(place, [replace(fault, sure_tries=SURE_TRIES) for fault in zombie])
        if is_possible(AFTER_FETCH, traits, instances_wanted):
            groups += [[replace(AFTER_FETCH, sure_tries=SURE_TRIES)]] * AT_WORK_IN_A_ROW
    apart = random.Random(f"oncelog prove secured {seed}")
    secured = [fault for fault in SECURED if is_possible(fault, traits, instances_wanted)]
    if is_short:
        secured = apart.sample(secured, min(SECURED_CHOSEN, len(secured)))
    for fault in secured:
        groups.insert(apart.randint(0, len(groups)), [replace(fault, sure_tries=SURE_TRIES)])
    return groups


def _several(
    kind: AimedFault, seconds: float, chance: random.Random, is_short: bool
) -> list[AimedFault]:
    """Return the sure faults of one kind, only one if the run is short.

    A long run has late requests and late answers of Produce, longer than the usual timeouts of ten,
    four and two seconds. It also has a late request and a late answer of EndTxn, and Produces that
    are refused with two errors.
    """
    if kind is STALL:
        most_s = STALL_MIN_S + 3 if is_short else min(STALL_MAX_S, max(15.0, seconds / 5))
        return [replace(kind, seconds=chance.uniform(STALL_MIN_S, most_s))]
    if kind is REFUSED_PRODUCE:
        refusals = [chance.choice(REFUSALS)] if is_short else REFUSALS
        return [replace(kind, refusal=refusal) for refusal in refusals]
    if kind.act is not Act.SLOW:
        return [kind]
    if is_short:
        return [_slow(kind, SHORT_S, chance)]
    if kind is SLOW_PRODUCE:
        other, side = chance.sample(SIDES, 2)
        return [
            _slow(kind, LONG_S, chance),
            _slow(kind, MIDDLE_S, chance, side),
            _slow(kind, SHORT_S, chance, "answer"),
            _slow(kind, MIDDLE_S, chance, other),
        ]
    if kind is SLOW_END:
        return [_slow(kind, SLOW_S, chance, "answer"), _slow(kind, SHORT_S, chance, "request")]
    return [_slow(kind, SLOW_S, chance)]


def _slow(
    kind: AimedFault, bounds_s: tuple[float, float], chance: random.Random, side: str = ""
) -> AimedFault:
    return replace(kind, seconds=chance.uniform(*bounds_s), side=side or chance.choice(SIDES))


def in_turn(deck: Sequence[AimedFault]) -> Iterator[AimedFault]:
    """Yield the faults in order, but the faults `AT_WORK` immediately after a kill.

    While a group waits for the session of a killed member, input piles up, so the instances are
    busy when a fault `AT_WORK` kills or pauses one. A pause at a commit is followed by a pause at
    the begin of a transaction.
    """
    at_work = [fault for fault in deck if fault is AT_WORK]
    for fault in deck:
        if fault is not AT_WORK:
            yield fault
        if fault is AT_COMMIT:
            yield AT_BEGIN
        if fault.act is Act.KILL:
            yield from at_work[:AT_WORK_IN_A_ROW]
            del at_work[:AT_WORK_IN_A_ROW]


def named(text: str) -> list[AimedFault]:
    """Return the faults named in a comma-separated list, or raise Failure for an unknown name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in FAULTS]:
        raise Failure(
            f"There is no fault {', '.join(unknown)}. There are: {', '.join(FAULTS)}.",
            exit_code=2,
        )
    return [FAULTS[name] for name in names]


def is_possible(fault: AimedFault, traits: Traits, instances_wanted: int) -> bool:
    """Return whether the fault can be injected, given the application's traits so far."""
    if fault.needs_brokers and not traits.has_brokers:
        return False
    if (fault.needs_tls and not traits.has_tls) or (fault.needs_user and not traits.has_user):
        return False
    most = instances_wanted + (0 if traits.is_alone else INSTANCES_MORE_MAX)
    if fault.act is Act.ADD and traits.instances >= most:
        return False
    return (
        traits.instances >= fault.instances_min
        and (not fault.apis or bool(fault.apis & traits.apis))
        and not fault.unless & traits.apis
        and fault.needs <= traits.apis
    )
