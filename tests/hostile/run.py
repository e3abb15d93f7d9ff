"""Hostile frames for a real cluster, on each kind of listener, before and after the login.

Frames of every served API and version are sent in random sequences on short connections. Two of
five frames are damaged. On the links between brokers the run sends garbage of each kind of message.
Batches with false headers must get the expected error code. During the run old and new connections
request ApiVersions. No broker may die, write a traceback to its node.log, or answer ApiVersions
late, and memory must not grow by much. Else the exit code is 1, and the frames that were sent last
are printed: `--frame HEX` sends one again.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import random
import re
import signal
import sys
import time
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zmq

from oncelog import Cluster
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.address import routing_id, socket_path
from oncelog.replication.peer.handlers import What, envelope
from oncelog.replication.peer.stream_message import encode
from oncelog.wire.messages import control, produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from ..lying_batches import lying_batches
from .decoders import PeerMessages
from .doors import HELLO, PROTOCOLS, Door, Watch, ask, cluster_in, frame_of
from .frames import TOPICS, TRANSACTIONS, FrameMaker, served_of
from .mutations import mutated

PEER = "peer"
LATE_S, GROWTH_BYTES = 1.0, 100_000_000
ATTACKERS, RECENT = 12, 60  # on each listener; frames that are kept
SILENT_S = 0.2  # after it no further answers to a sequence are awaited
STRANGER = 3  # a dead broker, in whose name the peer speaks
TOLD_EVERY_S, SETTLE_S = 5.0, 2.0
GONE = (OSError, EOFError, TimeoutError, zmq.ZMQError)
FAILED_API = re.compile(r"API (\d+) version (\d+)")


class Attack:
    """An attack on a running cluster. It records the sent frames and their effects."""

    def __init__(self, cluster: Cluster, folder: Path, seed: int, frame: bytes | None) -> None:
        self.cluster, self.rng, self._frame = cluster, random.Random(seed), frame
        self.node_ids = [node_id for node_id in cluster.node_ids if node_id != STRANGER]
        self.doors = [
            door for node_id in self.node_ids for door in Door.all_of(cluster, node_id, folder)
        ]
        self.left: Counter[str] = Counter()  # frames by the name of the listener
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.recent: dict[str, deque[bytes]] = {}
        self._closing = weakref.WeakSet[Any]()  # transports
        self._peers = PeerMessages()
        self._dealers: dict[int, Any] = {}

    def prepare(self) -> None:
        """Create topics and producers, and request the versions of APIs that the cluster serves."""

        async def create(admin: Any) -> None:
            for name in TOPICS:
                await admin.create_topic(name, partitions=2)

        self.cluster.ask(create)
        with contextlib.closing(self.doors[0].open()) as taken:
            served = served_of(control.decode_response(18, 0, ask(taken, HELLO)[4:]))
            asked = {"topics": [{"name": name, "topic_id": None} for name in TOPICS]}
            known = control.decode_response(3, 12, ask(taken, frame_of(3, 12, asked))[5:])
        ids = [bytes(topic.topic_id) for topic in known.topics]
        producers = [self._producer(name) for name in TRANSACTIONS]
        now_ms = time.time_ns() // 1_000_000
        self.maker = FrameMaker(self.rng, served, ids, producers, now_ms)

    def _producer(self, name: str) -> int:
        """Return a new producer id for a transactional id, when its coordinator is available."""
        asked = {"transactional_id": name, "transaction_timeout": 60_000}
        while True:
            coordinator = self.cluster.coordinator("txn", name)
            (door,) = (d for d in self.doors if (d.node_id, d.name) == (coordinator, "plain"))
            with contextlib.closing(door.open()) as taken:
                said = ask(taken, frame_of(22, 1, asked))[4:]
            answer = control.decode_response(22, 1, said)
            if not answer.error_code:
                return answer.producer_id
            time.sleep(0.1)

    def lie(self, names: Sequence[str]) -> list[str]:
        """Produce each batch with a false header to each listener, and return the wrong answers."""
        leader, wrong = self.cluster.leader(TOPICS[0], 0), []
        for door in self.doors:
            if door.node_id == leader and door.name in names:
                with contextlib.closing(door.open()) as taken:
                    for lie in lying_batches(time.time_ns() // 1_000_000):
                        topic = ProduceTopic(TOPICS[0], None, [ProducePartition(0, lie.data)])
                        body = produce.encode_request(ProduceRequest(None, 1, 9_000, [topic]), 7)
                        said = ask(taken, frame_of(0, 7, b"".join(body)))[4:]
                        code = produce.decode_response(memoryview(said), 7).topics[0].partitions[0]
                        if code.error_code != lie.skeleton:  # of a broker with TLS listeners
                            wrong.append(f"{door.name}: {lie.name}: {code.error_code}")
        return wrong

    # -- clients

    async def play(self, name: str, frames: int) -> None:
        """Send this number of frames to one kind of listener."""
        self.left[name], self.recent[name] = frames, deque(maxlen=RECENT)
        visit = self._speak if name == PEER else self._visit
        doors = [door for door in self.doors if door.name == name]

        async def attack() -> None:
            while self.left[name] > 0:
                where: Any = self.rng.choice(self.node_ids if name == PEER else doors)
                with contextlib.suppress(*GONE):
                    await visit(where)
                await asyncio.sleep(0)

        await asyncio.gather(*(attack() for _ in range(ATTACKERS)))
        for transport in self._closing:  # a broker need not read data that is still being sent
            transport.abort()

    def _take(self, name: str, frame: bytes) -> bytes:
        self.left[name] -= 1
        self.sent[name] += 1
        self.recent[name].append(frame)
        return frame

    async def _visit(self, door: Any) -> None:
        rng, name = self.rng, door.name
        async with asyncio.timeout(10):
            reader, writer = await door.streams(is_plain=rng.random() < 0.02)
        try:
            if rng.random() < 0.8:
                for frame in door.login:
                    writer.write(frame)
                    await self._answers(reader, 1)
            while self.left[name] > 0 and rng.random() < 0.93:
                frames = [self._frame or self.maker.make() for _ in range(rng.choice((1, 1, 3, 9)))]
                writer.write(b"".join(self._take(name, frame) for frame in frames))
                answered = await self._answers(reader, len(frames))
                self.answered[name] += answered
                if reader.at_eof():
                    return
        finally:
            self._closing.add(writer.transport)
            writer.transport.abort() if rng.random() < 0.5 else writer.close()

    async def _answers(self, reader: asyncio.StreamReader, wanted: int) -> int:
        """Count answers until all have come, the broker is silent, or the connection ends."""
        count = 0
        with contextlib.suppress(*GONE):
            while count < wanted:
                async with asyncio.timeout(SILENT_S):
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    await reader.readexactly(size)
                count += 1
        return count

    # -- a peer that claims to be another broker

    async def _speak(self, node_id: int) -> None:
        rng, directory = self.rng, self.cluster.peer_directory
        path = socket_path(directory, "bulk", node_id)
        reader, writer = await asyncio.open_unix_connection(path)
        dealer = self._dealer(node_id)
        try:
            hello = b"\0\0\0\x10oncelog1" + STRANGER.to_bytes(4) + node_id.to_bytes(4)
            writer.write(mutated(rng, hello) if rng.random() < 0.05 else hello)
            for _ in range(rng.randrange(1, 60)):
                if self.left[PEER] <= 0 or reader.at_eof():
                    return
                what = rng.choices(list(What), (5, 10, 1, 1))[0]
                kind, header = rng.choice((*PeerMessage, 99)), self._peers.make(rng)[1]
                parts = [bytes(rng.randrange(9))] * rng.choice((0, 0, 1, 3))
                if rng.random() < 0.5:
                    frame = b"".join(encode(what, kind, 7, header, parts)[0])
                    writer.write(
                        self._take(PEER, mutated(rng, frame) if rng.random() < 0.02 else frame)
                    )
                    await writer.drain()
                else:
                    first = envelope(what, kind, 7, len(header)) + header
                    self._take(PEER, first)
                    dealer.send_multipart([first, *parts], zmq.NOBLOCK)
                await asyncio.sleep(0.001)
        finally:
            writer.transport.abort()

    def _dealer(self, node_id: int) -> Any:
        """Return the ZeroMQ socket for state-changing messages to a node, sometimes a new one.

        Like a broker, the attack has only one such connection to a node at a time. If several have
        the same name, ZeroMQ 4.3 leaves some open forever, and the attacked broker loses their file
        descriptors. Only processes of the cluster's owner can make such connections.
        """
        dealer = self._dealers.pop(node_id, None)
        if dealer is not None and self.rng.random() < 0.02:
            dealer.close()
            dealer = None
        if dealer is None:
            dealer = zmq.Context.instance().socket(zmq.DEALER)
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.setsockopt(zmq.ROUTING_ID, routing_id(STRANGER))
            dealer.connect(f"ipc://{socket_path(self.cluster.peer_directory, 'control', node_id)}")
        self._dealers[node_id] = dealer
        return dealer

    # -- the state of the brokers after the attacks

    def rss_bytes(self) -> int:
        """Return the resident memory of the broker that uses most."""
        return max(each.rss_bytes for each in self._statuses())

    def dead(self) -> list[int]:
        return [each.node_id for each in self._statuses() if each.state != "running"]

    def _statuses(self) -> list[Any]:
        return [each for each in self.cluster.status() if each.node_id in self.node_ids]

    def tracebacks(self) -> list[str]:
        """Return the tracebacks in the brokers' logs, each with the line before it."""
        found: list[str] = []
        for node_id in self.node_ids:
            log = self.cluster.node(node_id).log.read_text(errors="replace")
            pieces = log.split("Traceback (most recent call last)")
            for before, piece in itertools.pairwise(pieces):
                found.append(before[-300:].rpartition("\n2")[2] + piece[:3_000])
        return found

    def suspects(self, trace: str) -> list[str]:
        """Return recent frames of the API and version in `trace`, or all if it names no API."""
        named = FAILED_API.search(trace)
        start = b"" if named is None else int(named[1]).to_bytes(2) + int(named[2]).to_bytes(2)
        return [
            f"{name} {frame.hex()}"
            for name, frames in self.recent.items()
            for frame in frames
            if frame[4:].startswith(start)
        ]

    async def all(self, frames: int, names: Sequence[str], late: Watch) -> None:
        """Attack all kinds of listeners in parallel, and print the progress."""
        playing = asyncio.gather(*(self.play(name, -(-frames // len(names))) for name in names))
        begun_s = time.monotonic()
        while not playing.done():
            await asyncio.wait([playing], timeout=TOLD_EVERY_S)
            done = sum(self.sent.values())
            print(
                f"{done:,} frames, {done / (time.monotonic() - begun_s):,.0f}/s, latest "
                f"{late.latest_s * 1000:,.0f} ms, {self.rss_bytes() / 1e6:.0f} MB",
                flush=True,
            )
            if self.dead():
                playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing
        for dealer in self._dealers.values():
            dealer.close()


def attack(
    frames: int, names: Sequence[str], seed: int, *, late_s: float = LATE_S,
    frame: bytes | None = None,
) -> list[str]:  # fmt: skip
    """Start a cluster, attack it, and return each problem as a sentence."""
    with TemporaryDirectory() as folder, cluster_in(Path(folder), 3 if PEER in names else 1) as own:
        if PEER in names:
            own.kill(STRANGER)
        run = Attack(own, Path(folder), seed, frame)
        run.prepare()
        wrong = run.lie(names)
        before_bytes = run.rss_bytes()
        with Watch([door for door in run.doors if door.name in names or PEER in names]) as watch:
            asyncio.run(run.all(frames, names, watch))
            time.sleep(SETTLE_S)
        for name in names:
            late = [each for door, each in zip(watch.doors, watch.late, strict=True)
                    if name in (door.name, PEER)]  # fmt: skip
            old_s, new_s = max(each.old_s for each in late), max(each.new_s for each in late)
            print(f"{name}: {run.sent[name]:,} frames, {run.answered[name]:,} answered; latest "
                  f"ApiVersions {old_s * 1000:,.0f} ms, new {new_s * 1000:,.0f} ms")  # fmt: skip
            wrong += [f"{name}: no answer: {lost}" for each in late for lost in each.lost[:3]]
            if max(old_s, new_s) > late_s:
                wrong.append(f"{name}: an ApiVersions came after {max(old_s, new_s):.2f} s")
        wrong += [f"broker {node_id} has died" for node_id in run.dead()]
        if wrong and run.dead():
            return [*wrong, *run.suspects("")]
        growth_bytes = run.rss_bytes() - before_bytes
        print(f"memory grew by {growth_bytes / 1e6:,.0f} MB")
        if growth_bytes > GROWTH_BYTES:
            wrong.append(f"memory grew by {growth_bytes / 1e6:,.0f} MB")
        for trace in run.tracebacks():
            wrong += [trace, *run.suspects(trace)[-3:]]
        return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack a cluster, and return 0 if it survived the frames, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.run", description=__doc__)
    parser.add_argument("--frames", metavar="N", type=int, default=20_000)
    parser.add_argument("--listeners", metavar="NAME,...", default=",".join((*PROTOCOLS, PEER)))
    parser.add_argument("--seed", metavar="S", type=int, default=random.getrandbits(32))
    parser.add_argument(
        "--late", metavar="S", type=float, default=LATE_S, help="slowest allowed answer, in seconds"
    )
    parser.add_argument("--frame", metavar="HEX", type=bytes.fromhex, help="send only this frame")
    options = parser.parse_args(arguments)
    names = options.listeners.split(",")
    if unknown := set(names) - {*PROTOCOLS, PEER}:
        parser.error(f"no such listener: {', '.join(sorted(unknown))}")
    print(f"run: {options.frames:,} frames, seed {options.seed}", flush=True)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of connections that are gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wrong = attack(options.frames, names, options.seed, late_s=options.late, frame=options.frame)
    print("\n".join(wrong))
    print(f"{'RED' if wrong else 'ok'}: {len(wrong)} lines of what is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
