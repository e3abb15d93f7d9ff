"""Run the state machines of a dual write under random failures against a model of Kafka.

One or more writers of the same name run, with check-backs of any open transaction. Each of these
actors may die, sleep and lose answers. At the end all actors are dead, and delayed requests arrive.
A last check-back or a last writer start ends the open transactions. Then rows and events are
compared. The models of Kafka and the database are in model_world.py.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from oncelog.client.dual_write import steps
from oncelog.client.dual_write.check_back import check_back
from oncelog.client.dual_write.protocol import WriterProtocol
from oncelog.client.dual_write.steps import DecidedOutcome, TransactionKey, WriterPhase
from oncelog.client.dual_write.stop_words import DecisionInDoubt, DecisionOverruled, DualWriteError

from .model_world import KeyTaken, Luck, Refused, World

QUIET = Luck(dies=0, is_lost=0, fails=0, sleeps=0, interrupts=0)


@dataclass(frozen=True)
class Parts:
    """The safeguards of a dual write, any of which a test may disable."""

    prepares_first: bool = True  # before the decision
    commits_first: bool = True  # the database, before Kafka
    has_nonce: bool = True
    has_epoch: bool = True  # in a decision's key
    one_owner: bool = True
    has_tombstone: bool = True
    leaves_uncertain_ids: bool = True
    asks_in_doubt: bool = True
    keeps_tombstones: bool = True  # of its own transactions
    # of an older session's decisions, instead of Kafka about open transactions
    asks_table: bool = True
    ends_what_comes_late: bool = True  # of sessions that a successor has ended
    asks_when_cut: bool = True  # whether an interrupted COMMIT has taken place


class Verdict(NamedTuple):
    lost: int  # rows without their events
    invented: int  # events without a row, at the end or for a while
    doubled: int
    left_open: int
    alarms: int
    transfers: int


class Gone(Exception):
    """Raised when the actor dies."""


class Actor:
    def __init__(self, world: World, parts: Parts) -> None:
        self.world, self.parts = world, parts
        self.asleep = 0

    def key(self, key: TransactionKey) -> TransactionKey:
        """Return the key under which the decision table stores a transaction."""
        return key if self.parts.has_epoch else replace(key, producer_id=0, producer_epoch=0)

    def lucky(self, request: Callable[[], object]) -> bool:
        """Execute a request to Kafka, and return whether the actor received the answer.

        Without an answer the request has taken effect, takes effect later, or never does.
        """
        world = self.world
        if not world.chance(world.luck.is_lost):
            request()
            return True
        fate = world.random.randrange(3)
        if fate == 0:
            with contextlib.suppress(Refused):
                request()
        elif fate == 1:
            world.later(request)
        return False

    def end(self, key: TransactionKey, *, is_commit: bool) -> steps.Event:
        def request() -> None:
            self.world.kafka.end(key, is_commit=is_commit)

        try:
            while not self.lucky(request):  # the client repeats the request until a deadline
                if self.world.chance(0.3):
                    return steps.EndUnanswered(TimeoutError())
        except Refused as problem:
            if problem.args[0] == "49" and is_commit:
                # prepared transactions do not expire, so this one was committed
                return steps.EndedAsDecided()
            return steps.EndRefused(problem, is_overruled=problem.args[0] == "48" and is_commit)
        return steps.EndedAsDecided()

    def read_or_abort(self, key: TransactionKey) -> steps.Event:
        if not self.parts.has_tombstone and isinstance(self, CheckBack):
            return steps.OutcomeRead(self.world.database.outcomes.get(key, DecidedOutcome.ABORTED))
        read = self.world.database.read_or_abort(key)
        is_over = read.is_session_over and self.parts.ends_what_comes_late
        return replace(read, is_session_over=is_over)


class Writer(Actor):
    numbers = 0

    def __init__(self, world: World, parts: Parts, number: int, transactions: int) -> None:
        super().__init__(world, parts)
        self.protocol, self.number = WriterProtocol("w"), number
        self.sessions, self.left = 0, transactions
        self.effect: steps.Effect | None = steps.StartSession()
        self.own = TransactionKey("", 0, 0)
        self.unsent: list[int] = []
        self.has_sent = self.is_ended = False
        self.transfer = 0
        self.aborted: list[TransactionKey] = []

    def turn(self) -> None:
        """Execute the current effect, and set the next effect. Raise Gone if the writer dies."""
        world = self.world
        if world.chance(world.luck.dies / 2):
            raise Gone
        assert self.effect is not None
        event = self.perform(self.effect)
        world.look()
        if world.chance(world.luck.dies / 2):
            raise Gone
        if self.protocol.is_amid and world.chance(world.luck.interrupts):
            is_asked = self.parts.asks_when_cut or self.protocol.phase is not WriterPhase.DECIDING
            step, cut = self.protocol.step, KeyboardInterrupt()
            refused = steps.DatabaseRefused(cut)
            self.effect = self.protocol.resume(cut) if is_asked else step(refused)
            return
        try:
            self.effect = self.changed(event) or self.protocol.step(event)
        except DecisionOverruled as alarm:
            world.alarms += 1
            raise Gone from alarm
        except TimeoutError as stopped:
            if self.protocol.phase is not WriterPhase.OWING:
                raise Gone from stopped
            self.effect = steps.EndBlock(is_committed=False)  # the application begins again, later
        except (DecisionInDoubt, DualWriteError, Refused) as stopped:
            raise Gone from stopped

    def perform(self, effect: steps.Effect) -> steps.Event:
        world, kafka, database = self.world, self.world.kafka, self.world.database
        match effect:
            case steps.StartSession():
                self.sessions += 1
                nonce = f".{self.number}.{self.sessions}" if self.parts.has_nonce else ""
                return steps.SessionStarted("w" + nonce)
            case steps.Claim(_, transactional_id):
                return steps.Claimed(*database.claim(transactional_id))
            case steps.ReadDecisions(name):
                return self.read_decisions(name)
            case steps.ReadOrAbort(key):
                return self.read_or_abort(self.key(key))
            case steps.EndAsDecided(key, is_commit):
                event = self.end(key, is_commit=is_commit)
                if key == self.own and isinstance(event, steps.EndedAsDecided):
                    self.next_epoch()
                return event
            case steps.FenceSession(name):
                while not self.lucky(lambda: kafka.init(name)):
                    pass
                return steps.SessionFenced()
            case steps.DeleteSession(name):
                if self.parts.has_nonce:
                    database.delete_session(name)
                return steps.SessionDeleted()
            case steps.Initialize(name):
                is_certain, answers = True, list[TransactionKey]()
                while not self.lucky(lambda: answers.append(kafka.init(name))):
                    is_certain = not self.parts.leaves_uncertain_ids
                self.own = answers[-1]
                return steps.Initialized(is_certain)
            case steps.BecomeReady() | steps.EndBlock():
                if self.left == 0:
                    raise Gone
                self.left -= 1
                return steps.BlockBegun()
            case steps.BeginBoth():
                Writer.numbers += 1
                self.transfer, self.has_sent, self.is_ended = Writer.numbers, False, False
                self.unsent = [] if world.chance(0.1) else [self.transfer]
                return steps.BothBegun()
            case steps.RunBlock():
                return self.run_block()
            case steps.Prepare():
                return self.prepare()
            case steps.Decide(_, key, generation, finished):
                forgotten = (*finished, *(() if self.parts.keeps_tombstones else self.aborted))
                return self.decide(self.key(key), generation, tuple(map(self.key, forgotten)))
            case steps.RollBack():
                return steps.RolledBack()
            case steps.AbortOwn():
                self.aborted.append(self.own)
                if not self.has_sent or self.is_ended:
                    return steps.Aborted()
                event = self.end(self.own, is_commit=False)
                if isinstance(event, steps.EndedAsDecided):
                    self.next_epoch()
                    return steps.Aborted()
                return event
            case steps.ReadGeneration():
                return steps.GenerationRead(database.generation)
            case _:
                raise AssertionError(effect)

    def read_decisions(self, name: str) -> steps.Event:
        """Return the session's transactions that the decision table has as committed.

        Without the safeguard `asks_table`, the writer first asks Kafka for the open transaction,
        which a deposed leader may not know.
        """
        world = self.world
        if not self.parts.asks_table:
            opened = None if world.chance(0.1) else world.kafka.open_key(name)
            words = world.database.outcomes
            is_decided = opened and words.get(self.key(opened)) is DecidedOutcome.COMMITTED
            return steps.DecisionsRead((opened,) if opened and is_decided else ())
        return steps.DecisionsRead(world.database.decisions(name))

    def next_epoch(self) -> None:
        self.is_ended = True
        self.own = replace(self.own, producer_epoch=self.own.producer_epoch + 1)

    def send(self, event: int) -> None:
        own = self.own
        while not self.lucky(lambda: self.world.kafka.produce(own, event)):
            pass

    def run_block(self) -> steps.Event:
        world = self.world
        if self.unsent and world.chance(0.5):  # a batch is sent before the end of the block
            self.has_sent = True
            try:
                self.send(self.transfer)
            except Refused as problem:
                return steps.BlockFailed(problem)
            self.unsent = self.unsent if world.chance(0.5) else []
        if world.chance(world.luck.fails):
            return steps.BlockFailed(ValueError())
        return steps.BlockDone()

    def prepare(self) -> steps.Event:
        try:
            for event in self.unsent:
                self.has_sent = True
                self.send(event)
        except Refused as problem:
            return steps.BlockFailed(problem)
        return steps.Prepared(self.own if self.has_sent else None)

    def decide(
        self, key: TransactionKey, generation: int, finished: tuple[TransactionKey, ...]
    ) -> steps.Event:
        world, transfer = self.world, self.transfer
        if not self.has_sent and self.parts.prepares_first:
            transfer = -transfer  # a row without an event, as intended
        checked = generation if self.parts.one_owner else None

        def commit() -> None:
            world.database.decide(key, transfer, finished, checked)

        if not world.chance(world.luck.is_lost):
            try:
                commit()
            except KeyTaken as problem:
                return steps.DatabaseRefused(problem)
            return steps.DatabaseCommitted()
        fate = world.random.randrange(3)
        if fate == 0:
            with contextlib.suppress(KeyTaken):
                commit()
        elif fate == 1:
            world.later(commit)  # the server has the commit, and is slow
        return steps.DatabaseInDoubt(ConnectionError())

    # --- writers without some of their parts

    def changed(self, event: steps.Event) -> steps.Effect | None:
        protocol, phase = self.protocol, self.protocol.phase
        if not self.parts.asks_in_doubt and isinstance(event, steps.DatabaseInDoubt):
            return protocol.step(steps.DatabaseRefused(event.reason))
        if not self.parts.prepares_first:
            if isinstance(event, steps.BlockDone):
                return protocol_at(protocol, WriterPhase.PREPARING).step(steps.Prepared(self.own))
            if phase is WriterPhase.DECIDING and isinstance(event, steps.DatabaseCommitted):
                protocol_at(protocol, WriterPhase.PREPARING)
                return steps.Prepare()
            if phase is WriterPhase.PREPARING and isinstance(event, steps.Prepared):
                return protocol_at(protocol, WriterPhase.DECIDING).step(steps.DatabaseCommitted())
        if not self.parts.commits_first:
            if phase is WriterPhase.PREPARING and isinstance(event, steps.Prepared) and event.key:
                decide = protocol.step(event)
                self.decision = decide
                return steps.EndAsDecided(event.key, is_commit=True)
            if phase is WriterPhase.DECIDING and isinstance(event, steps.EndedAsDecided):
                return self.decision
            if phase is WriterPhase.DECIDING and isinstance(
                event, steps.EndRefused | steps.EndUnanswered
            ):
                raise Gone
            if phase is WriterPhase.DECIDING and isinstance(event, steps.DatabaseCommitted):
                effect = protocol.step(event)
                return protocol.step(steps.EndedAsDecided()) if self.has_sent else effect
        return None


def protocol_at(protocol: WriterProtocol, phase: WriterPhase) -> WriterProtocol:
    protocol.phase = phase
    return protocol


class CheckBack(Actor):
    def __init__(self, world: World, parts: Parts, key: TransactionKey) -> None:
        super().__init__(world, parts)
        self.checked = key
        self.begin()

    def begin(self) -> None:
        self.effects = check_back(self.checked)
        self.effect = next(self.effects)

    def turn(self) -> None:
        world = self.world
        if world.chance(world.luck.dies):
            raise Gone
        match self.effect:
            case steps.ReadOrAbort(key):
                event = self.read_or_abort(self.key(key))
                if world.chance(world.luck.fails):
                    event = steps.OutcomeRead(None)  # a resolver without an answer
            case steps.EndAsDecided(key, is_commit):
                event = self.end(key, is_commit=is_commit)
            case steps.WaitAndAsk():
                self.begin()
                return
            case _:
                raise Gone
        world.look()
        self.effect = self.effects.send(event)


def run(seed: int, parts: Parts = Parts(), *, writers: int = 4, transactions: int = 4) -> Verdict:
    """Run the model once for a seed, and return the differences between rows and events."""
    random = Random(seed)
    world = World(random, Luck())
    actors: list[Writer | CheckBack] = []
    started = 0
    for _ in range(600):
        living = [actor for actor in actors if isinstance(actor, Writer)]
        if started < writers and (not living or world.chance(0.01)):
            started += 1
            actors.append(Writer(world, parts, started, transactions))
        if world.chance(0.02) and (opened := world.kafka.open_keys()):
            actors.append(CheckBack(world, parts, random.choice(opened)))
        if world.chance(0.1):
            world.arrive()
        if world.chance(0.005) and world.kafka.ids:
            world.kafka.forget(random.choice(list(world.kafka.ids)))
        if not actors and started == writers:
            break
        if not actors:
            continue
        actor = random.choice(actors)
        if actor.asleep:
            actor.asleep -= 1
            continue
        if world.chance(world.luck.sleeps):
            actor.asleep = random.randrange(40)
        _take_turn(actors, actor)
    actors.clear()
    world.arrive(all_of_them=True)
    _clean_up(world, parts)
    return _verdict(world)


def _take_turn(actors: list[Writer | CheckBack], actor: Writer | CheckBack) -> None:
    try:
        actor.turn()
    except Gone:
        actors.remove(actor)


def _clean_up(world: World, parts: Parts) -> None:
    world.luck = QUIET
    last: list[Writer | CheckBack] = []
    if world.chance(0.5):
        last.append(Writer(world, parts, 99, 0))
    while last:
        _take_turn(last, last[0])
    last += [CheckBack(world, parts, key) for key in world.kafka.open_keys()]
    for _ in range(10 * len(last)):  # transactions not ended by then stay open
        if last:
            _take_turn(last, last[0])


def _verdict(world: World) -> Verdict:
    events, rows = world.kafka.events, {t for t in world.database.transfers if t > 0}
    return Verdict(
        lost=len(rows - events.keys()),
        invented=len((events.keys() - rows) | world.premature),
        doubled=sum(count > 1 for count in events.values()),
        left_open=len(world.kafka.open_keys()),
        alarms=world.alarms,
        transfers=len(rows),
    )
