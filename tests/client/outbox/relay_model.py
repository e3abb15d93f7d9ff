"""Run relays of one outbox under random failures with the product's SQL and a model of Kafka.

Each statement and each request is one step, after which the seed draws the next actor. A relay may
die between two steps, which rolls its connection back. It may sleep for many steps. It may lose an
answer. The request then has taken effect, takes effect later, or never does. Kafka does what KIP-98
promises. InitProducerId raises the epoch, aborts an open transaction and waits for a decided one.
Markers come late. Transactions time out. The topic is compacted. Rows commit in another order than
their times, since each session has its own clock. At the end one relay works alone, and rows and
records are compared.
"""

import sqlite3
import types
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from oncelog.client.dual_write.decision_table import Statement
from oncelog.client.dual_write.flow import Flow
from oncelog.client.outbox import records, relay, table
from oncelog.client.outbox.relay import OutboxRelay
from oncelog.client.producer import Producer, RecordMetadata
from oncelog.wire.errors import KafkaError, ProducerFenced, TopicAlreadyExists

NAME = "w"
SESSIONS = 3


class Gone(BaseException):
    """Raised in a relay when its process dies, so that no `finally` block runs to its end."""


@dataclass
class Luck:
    """The probability of each failure in one step."""

    dies: float = 0.01
    is_lost: float = 0.06  # an answer of Kafka
    sleeps: float = 0.06
    is_deposed: float = 0.1  # probability that a deposed leader, unaware of it, answers a reader


@dataclass
class Transaction:
    epoch: int
    state: str = "open"  # open, decided (markers are being written), committed, aborted


@dataclass
class Entry:
    offset: int
    key: bytes | None
    value: bytes
    transaction: Transaction


@dataclass
class Kafka:
    """A model of Kafka with the one transactional id of the outbox, and the logs of topics."""

    epoch: int = -1
    current: Transaction | None = None
    logs: dict[str, list[Entry]] = field(default_factory=dict)
    end: Counter[str] = field(default_factory=Counter)

    def initialize(self) -> int | None:
        """Return the new epoch, or None while markers of a decided transaction are missing."""
        if self.current is not None:
            if self.current.state == "decided":
                return None
            self.abort()
        self.epoch += 1
        return self.epoch

    def abort(self) -> None:
        if self.current is not None and self.current.state == "open":
            self.current.state, self.current = "aborted", None

    def time_out(self) -> None:
        if self.current is not None and self.current.state == "open":
            self.abort()
            self.epoch += 1

    def write_markers(self) -> None:
        if self.current is not None and self.current.state == "decided":
            self.current.state, self.current = "committed", None

    def _check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ProducerFenced("an old epoch")

    def produce(self, epoch: int, topic: str, key: bytes | None, value: bytes) -> int:
        self._check(epoch)
        self.write_markers()  # a new transaction waits for the old one's markers
        if self.current is None:
            self.current = Transaction(epoch)
        entries = self.logs.setdefault(topic, [])
        entries.append(Entry(self.end[topic], key, value, self.current))
        self.end[topic] += 1
        return self.end[topic] - 1

    def commit(self, epoch: int) -> None:
        self._check(epoch)
        if self.current is not None:
            self.current.state = "decided"

    def stable(self, topic: str) -> int:
        """Return the last stable offset of the topic."""
        waiting = (e.offset for e in self.logs.get(topic, ()) if e.transaction.state in OPEN)
        return min(waiting, default=self.end[topic])

    def compact(self, topic: str) -> None:
        """Compact the topic, but only up to its last stable offset."""
        entries = self.logs.get(topic, [])
        stable = self.stable(topic)
        done = [e for e in entries if e.offset < stable and e.transaction.state == "committed"]
        newest = sorted({e.key: e for e in done}.values(), key=lambda e: e.offset)
        self.logs[topic] = newest + [e for e in entries if e.offset >= stable]

    def committed(self, topic: str) -> list[bytes]:
        entries = self.logs.get(topic, ())
        return [entry.value for entry in entries if entry.transaction.state == "committed"]


OPEN = ("open", "decided")


class Turn:
    """A pause before each step of a relay, in which another relay may run."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class World:
    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.luck = Random(seed), Luck()
        self.kafka = Kafka()
        self.path = folder / f"bank-{seed}"
        self.under_way: list[Callable[[], None]] = []
        self.running: Actor | None = None
        self.rows = self.superseded = 0
        self.numbers = Counter[int]()
        self.created_ms = Counter[int]()
        self.own = sqlite3.connect(self.path, timeout=0)
        for pragma in ("journal_mode = WAL", "synchronous = OFF"):
            self.own.execute(f"PRAGMA {pragma}")
        self.own.commit()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    async def step(self) -> "Actor":
        """Wait until the running actor may make a step, and return it. Raise Gone if it died."""
        actor = self.running
        assert actor is not None
        if not actor.is_dead:
            await Turn()
        if actor.is_dead:
            raise Gone
        return actor

    async def request(self, execute: Callable[[], None]) -> None:
        """Execute a request to Kafka. Its answer may be lost."""
        await self.step()
        if not self.chance(self.luck.is_lost):
            execute()
            return
        fate = self.random.randrange(3)
        if fate == 0:
            with suppress(KafkaError):
                execute()
        elif fate == 1:
            self.under_way.append(execute)
        raise KafkaError("no answer")

    def arrive(self) -> None:
        """Execute one of the requests that arrive late."""
        if self.under_way:
            at = self.random.randrange(len(self.under_way))
            with suppress(KafkaError):
                self.under_way.pop(at)()

    def known_to_leader(self, topic: str) -> int:
        """Return the end offset that a broker reports, which is too low if the broker was deposed
        as leader.
        """
        end = self.kafka.end[topic]
        return self.random.randrange(end + 1) if self.chance(self.luck.is_deposed) else end

    def write_row(self) -> None:
        """Commit one row as an outbox writer does. Each writer session has a clock of its own."""
        session = self.random.randrange(SESSIONS)
        created_ms = self.created_ms[session] + self.random.randrange(3)
        text = records.to_text(b"%d.%d" % (session, self.numbers[session]), None, None, None, ())
        row = table.Row(f"{session}", self.numbers[session], created_ms, "out", text)
        (insert,) = table.insert(NAME, row)
        assert isinstance(insert, Statement)
        try:
            self.own.execute(insert.text, insert.parameters)
            self.own.commit()
        except sqlite3.OperationalError:  # the table is missing yet, or a relay holds the lock
            self.own.rollback()
            return
        self.created_ms[session] = created_ms
        self.numbers[session] += 1
        self.rows += 1


@dataclass
class _Done:
    """A delivery with a known result."""

    result: RecordMetadata

    def __await__(self) -> Generator[None, None, RecordMetadata]:
        yield from ()
        return self.result


class ModelProducer:
    def __init__(self, world: World, _: object, **options: Any) -> None:
        self._world, self._epoch = world, -1
        self._is_begun = False

    async def init_transactions(self) -> None:
        answers: list[int | None] = []
        while not answers or answers[-1] is None:
            await self._world.request(lambda: answers.append(self._world.kafka.initialize()))
        self._epoch = answers[-1]

    async def begin_transaction(self) -> None:
        self._is_begun = True

    async def send(
        self, topic: str, value: bytes, *, key: bytes | None = None, **_: object
    ) -> _Done:
        kafka, epoch, offsets = self._world.kafka, self._epoch, list[int]()
        await self._world.request(lambda: offsets.append(kafka.produce(epoch, topic, key, value)))
        return _Done(RecordMetadata(topic, 0, offsets[0]))

    async def commit_transaction(self) -> None:
        kafka, epoch = self._world.kafka, self._epoch
        await self._world.request(lambda: kafka.commit(epoch))
        self._is_begun = False

    async def flush(self) -> None:
        """Return immediately, since each send waits for its answer."""

    async def abort_transaction(self) -> None:
        kafka, epoch = self._world.kafka, self._epoch
        await self._world.request(lambda: kafka.abort() if epoch == kafka.epoch else None)
        self._is_begun = False

    async def close(self) -> None:
        """Abort an open transaction if possible, as the client does."""
        if self._is_begun:
            await self.abort_transaction()


class ModelAdmin:
    def __init__(self, world: World, _: object) -> None:
        self._world = world

    async def __aenter__(self) -> "ModelAdmin":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def create_topic(self, topic: str, **_: object) -> None:
        await self._world.step()
        if self._world.kafka.logs.setdefault(topic, []):
            raise TopicAlreadyExists(topic)

    async def list_offsets(
        self, keys: dict[tuple[str, int], int], *, read_committed: bool = False
    ) -> dict[tuple[str, int], int]:
        await self._world.step()
        kafka, found = self._world.kafka, {}
        for topic, partition in keys:
            end = kafka.stable(topic) if read_committed else kafka.end[topic]
            found[topic, partition] = min(end, self._world.known_to_leader(topic))
        return found


class ModelConsumer:
    def __init__(self, world: World, _: object, **settings: str) -> None:
        self._world, self._at, self._topic = world, 0, ""
        assert settings["isolation_level"] == "read_committed"

    async def __aenter__(self) -> "ModelConsumer":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def assign(self, starts: dict[tuple[str, int], int]) -> None:
        (((self._topic, _), self._at),) = starts.items()

    def position(self, *_: object) -> int:
        return self._at

    async def poll(self, _: int) -> list[types.SimpleNamespace]:
        await self._world.step()
        kafka, start, entries = self._world.kafka, self._at, []
        known = self._world.known_to_leader(self._topic)
        self._at = max(start, min(kafka.stable(self._topic), known))
        for entry in kafka.logs[self._topic]:
            if start <= entry.offset < self._at and entry.transaction.state == "committed":
                entries.append(types.SimpleNamespace(key=entry.key, value=entry.value))
        return entries


class SlowCursor(sqlite3.Cursor):
    connection: "SlowConnection"  # type: ignore[misc]

    async def execute(self, *statement: Any) -> None:  # type: ignore[override]
        await self.connection.world.step()
        super().execute(*statement)


class SlowConnection(sqlite3.Connection):
    """A SQLite connection on which each statement is one step of the model."""

    world: World

    def cursor(self) -> SlowCursor:  # type: ignore[override]
        return super().cursor(SlowCursor)

    async def commit(self) -> None:  # type: ignore[override]
        await self.world.step()
        super().commit()
        if self.world.chance(self.world.luck.is_lost / 4):
            raise sqlite3.OperationalError("no answer to the commit")

    async def rollback(self) -> None:  # type: ignore[override]
        await self.world.step()
        super().rollback()

    async def close(self) -> None:  # type: ignore[override]
        await self.world.step()
        self.end()

    def end(self) -> None:
        super().close()


class ModelRelay(OutboxRelay):
    """The product's relay, without its check that the database settings are durable."""

    def _refuse_unsafe(self) -> Flow[None]:
        yield from ()


class Actor:
    """One process that runs one relay."""

    def __init__(self, world: World, kind: type[ModelRelay]) -> None:
        self.world, self.is_dead, self.asleep = world, False, 0
        self.connections: list[SlowConnection] = []
        self.relay = kind("", NAME, self.connect, batch_rows_max=3)
        self.work = self.relay.run(every_ms=0)

    def connect(self) -> SlowConnection:
        connection = sqlite3.connect(self.world.path, timeout=0, factory=SlowConnection)
        connection.world = self.world
        connection.execute("PRAGMA synchronous = OFF")
        self.connections.append(connection)
        return connection

    def turn(self) -> bool:
        """Run one step of the actor, and return whether the actor is alive."""
        self.world.running = self
        try:
            self.work.send(None)
        except table.RelaySuperseded:
            self.world.superseded += 1
            self.die()
        return not self.is_dead

    def die(self) -> None:
        self.is_dead, self.world.running = True, self
        with suppress(Gone, RuntimeError):  # RuntimeError: the work has ended
            self.work.throw(Gone())
        for connection in self.connections:
            connection.end()


class Verdict(NamedTuple):
    lost: int  # neither sent nor in the table
    doubled: int
    out_of_order: int
    rows: int
    left: int  # in the table


class Patches(NamedTuple):
    """The model's replacements for names that relay.py imports."""

    Producer: Callable[..., Producer]
    Admin: Callable[..., Any]
    Consumer: Callable[..., Any]
    asyncio: Any


def patches(world: World) -> Patches:
    async def sleep(_: float) -> None:
        await world.step()

    clock = types.SimpleNamespace(sleep=sleep, timeout=lambda _: _Unlimited())
    return Patches(
        lambda *a, **k: ModelProducer(world, *a, **k),  # type: ignore[arg-type,return-value]
        lambda source: ModelAdmin(world, source),
        lambda *a, **k: ModelConsumer(world, *a, **k),
        clock,
    )


class _Unlimited(nullcontext[None]):
    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, *_: object) -> None:
        return


def run(
    seed: int, folder: Path, kind: type[ModelRelay] = ModelRelay, *, relays: int = 3
) -> Verdict:
    """Run the model once for a seed, and return how the records differ from the rows."""
    world = World(seed, folder)
    before = {name: getattr(relay, name) for name in Patches._fields}
    for name, part in patches(world)._asdict().items():
        setattr(relay, name, part)
    try:
        _live(world, kind, relays)
        return _end(world, kind)
    finally:
        for name, part in before.items():
            setattr(relay, name, part)
        world.own.close()


def _live(world: World, kind: type[ModelRelay], relays: int) -> None:
    actors: list[Actor] = []
    for _ in range(900):
        if len(actors) < relays and (not actors or world.chance(0.03)):
            starting = world.random.randrange(1, 3)  # sometimes two at once
            actors += [Actor(world, kind) for _ in range(starting)]
        if world.chance(0.05):
            world.write_row()
        if world.chance(0.1):
            world.kafka.write_markers()
        if world.chance(0.05):
            world.arrive()
        if world.chance(0.004):
            world.kafka.time_out()
        if world.chance(0.02):
            world.kafka.compact(f"{relay.PREFIX}{NAME}")
        if not actors:
            continue
        actor = world.random.choice(actors)
        if actor.asleep:
            actor.asleep -= 1
            continue
        if world.chance(world.luck.sleeps):
            actor.asleep = world.random.randrange(40)
        if not actor.turn():
            actors.remove(actor)
        elif world.chance(world.luck.dies):
            actor.die()
            actors.remove(actor)
    for actor in actors:
        actor.die()


def _end(world: World, kind: type[ModelRelay]) -> Verdict:
    """Deliver the late requests, let one relay send the remaining rows, and compare the records."""
    while world.under_way:
        world.arrive()
    world.luck = Luck(0, 0, 0, 0)
    last = Actor(world, kind)
    for _ in range(2_000):
        last.turn()
        world.kafka.write_markers()
        if last.is_dead or (last.relay.is_idle and not _left(world)):
            break
    last.die()
    sent, left = world.kafka.committed("out"), _left(world)
    wanted = {
        b"%d.%d" % (session, number)
        for session, count in world.numbers.items()
        for number in range(count)
    }
    by_session = [[e for e in sent if e.startswith(b"%d." % s)] for s in range(SESSIONS)]
    numbers = [[int(e.split(b".")[1]) for e in each] for each in by_session]
    return Verdict(
        lost=len(wanted - set(sent)) - left,
        doubled=len(sent) - len(set(sent)),
        out_of_order=sum(each != sorted(each) for each in numbers),
        rows=world.rows,
        left=left,
    )


def _left(world: World) -> int:
    (count,) = world.own.execute(f"SELECT count(*) FROM {table.TABLE}").fetchone()
    world.own.rollback()
    return int(count)
