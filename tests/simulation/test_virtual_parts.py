"""Test that the simulated clock, network and disk behave like those that they replace."""

import asyncio
import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.handlers import Buffer, PeerTimeout, PeerUnavailable, Reply

from .fault_schedule import KINDS, ONLY_DURABLE, ImpossibleFault, draw, require_possible
from .outcome import NAMED, Fault, Outcome, Shape
from .shrink import command, shrink
from .virtual_disk import Disks
from .virtual_links import Exchange, VirtualLinks
from .virtual_loop import ProcessLoop, Timeline
from .virtual_sockets import HIGH_WATER_BYTES, WINDOW_BYTES, ListeningSocket, Sockets
from .virtual_threads import Threads
from .wires import PORT_BASE, Wires


class Stream(asyncio.BufferedProtocol):
    """A protocol that records the received bytes and the callbacks."""

    def __init__(self) -> None:
        self.received, self.told = bytearray(), list[str]()
        self._buffer = bytearray(1000)
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # type: ignore[override]
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def eof_received(self) -> bool:
        self.told.append("end")
        return False

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost" if exc is None else "reset")


class Pair:
    """A node with a listener, and a client that can connect to it."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline = Timeline(seed)
        self.wires = Wires(self.timeline)
        self.sockets = Sockets(self.timeline, self.wires)
        self.node = ProcessLoop(self.timeline, 1, self.sockets)
        self.client = ProcessLoop(self.timeline, 101, self.sockets)
        self.served: list[Stream] = []
        self.sockets.listen(self.node, self._serve, ListeningSocket("127.0.0.1", PORT_BASE + 1))

    def _serve(self) -> Stream:
        self.served.append(Stream())
        return self.served[-1]

    def connect(self) -> tuple[Any, Stream]:
        work = self.client.create_connection(Stream, "127.0.0.1", PORT_BASE + 1)
        task = self.client.create_task(work)
        assert self.timeline.run(10, task.done)
        return task.result()


def test_virtual_time_jumps_to_the_next_timer_and_runs_timers_in_order() -> None:
    timeline = Timeline(1)
    one, other = ProcessLoop(timeline, 1), ProcessLoop(timeline, 2)
    seen: list[object] = []

    async def sleeper(loop: ProcessLoop, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((loop.number, asyncio.get_running_loop() is loop, timeline.now))

    for loop, seconds in ((one, 3600.0), (other, 2.0), (one, 2.0)):
        loop.create_task(sleeper(loop, seconds))
    timeline.run(4000)
    assert seen == [(2, True, 1002.0), (1, True, 1002.0), (1, True, 4600.0)]
    assert timeline.now == 5000.0


def test_virtual_process_runs_its_timers_after_a_pause_and_never_after_a_kill() -> None:
    timeline = Timeline(1)
    paused, dead = ProcessLoop(timeline, 1), ProcessLoop(timeline, 2)
    seen: list[int] = []
    for loop in (paused, dead):
        for n in (1, 2):
            loop.call_later(n, seen.append, 10 * loop.number + n)
    paused.pause()
    dead.kill()
    timeline.run(5)
    assert seen == []
    paused.resume()
    timeline.run(0)
    assert seen == [11, 12] and timeline.now == 1005.0


def test_virtual_executor_job_of_a_killed_process_is_done_wholly_or_not_at_all() -> None:
    outcomes = set()
    for seed in range(60):
        timeline = Timeline(seed)
        loop = ProcessLoop(timeline, 1)
        done: list[str] = []
        job = loop.run_in_executor(Threads(loop), done.append, "done")
        timeline.run(random.Random(seed).uniform(0, 0.0008))
        outcomes.add((bool(done), job.done()))
        loop.kill()
        timeline.run(1)
    assert outcomes == {(False, False), (True, False), (True, True)}


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_virtual_connection_delivers_split_bytes_in_order(pair: Pair) -> None:
    _, stream = pair.connect()
    sent = random.Random(1).randbytes(20_000)
    for at in range(0, len(sent), 50):
        stream.transport.write(sent[at : at + 50])
    pair.timeline.run(5)
    assert pair.served[0].received == sent
    pair.served[0].transport.close()
    pair.timeline.run(5)
    assert stream.told == ["end", "lost"] and pair.served[0].told == ["lost"]


def test_virtual_connection_pauses_the_writer_when_the_reader_stops(pair: Pair) -> None:
    _, stream = pair.connect()
    pair.timeline.run(1)
    served = pair.served[0]
    served.transport.pause_reading()
    total = 0
    while "pause" not in stream.told:
        stream.transport.write(bytes(10_000))
        total += 10_000
        pair.timeline.run(0.01)
    assert WINDOW_BYTES < total <= WINDOW_BYTES + HIGH_WATER_BYTES + 20_000
    served.transport.resume_reading()
    pair.timeline.run(5)
    assert stream.told == ["pause", "resume"] and len(served.received) == total


def test_virtual_connection_during_a_cut_is_silent_and_delivers_its_bytes_afterwards(
    pair: Pair,
) -> None:
    _, stream = pair.connect()
    pair.timeline.run(1)
    pair.wires.cut([(101, 1)])
    stream.transport.write(b"late")
    pair.served[0].transport.write(b"back") if pair.served[0].transport else None
    pair.timeline.run(30)
    assert not pair.served[0].received and stream.received == b"back" and not stream.told
    pair.wires.mend([(101, 1)])
    pair.timeline.run(1)
    assert pair.served[0].received == b"late"


@pytest.mark.parametrize("way", ["close", "abort"])
def test_virtual_connection_with_held_bytes_delivers_the_bytes_before_its_close(
    pair: Pair, way: str
) -> None:
    """A batch that was held back must arrive late, even if its connection was closed since."""
    _, stream = pair.connect()
    pair.timeline.run(1)
    pair.sockets.hold(101, 1, 5.0)
    stream.transport.write(b"late")
    pair.timeline.run(1)
    getattr(stream.transport, way)()
    served = pair.served[0]
    pair.timeline.run(10, lambda: bool(served.received))
    assert served.received == b"late" and not served.told
    assert pair.timeline.run(1, lambda: bool(served.told))


@pytest.mark.parametrize("power", [False, True])
def test_virtual_connection_is_reset_by_a_kill_and_silent_after_a_power_cut(
    pair: Pair, power: bool
) -> None:
    _, stream = pair.connect()
    pair.node.kill()
    if power:
        pair.sockets.powerless.add(PORT_BASE + 1)
        pair.wires.silent.add(1)
    pair.sockets.process_died(pair.node, power=power)
    again = pair.client.create_task(pair.client.create_connection(Stream, "", PORT_BASE + 1))
    pair.timeline.run(5)
    assert stream.told == ([] if power else ["reset"])
    assert again.done() is not power
    pair.sockets.powerless.clear()
    pair.wires.silent.clear()
    pair.sockets.power_is_back(1)
    pair.timeline.run(5)
    assert stream.told == ["reset"]
    assert isinstance(again.exception(), ConnectionRefusedError)


class Links:
    def __init__(self) -> None:
        self.timeline = Timeline(3)
        self.wires = Wires(self.timeline)
        self.exchange = Exchange(self.wires)
        self.loops = {i: ProcessLoop(self.timeline, i) for i in (1, 2)}
        self.nodes = {i: VirtualLinks(i, (1, 2), self.exchange, self.loops[i]) for i in (1, 2)}
        self.changes: list[tuple[int, bool]] = []
        self.nodes[1].on_peer_change(lambda peer, is_up: self.changes.append((peer, is_up)))
        for i, node in self.nodes.items():
            self.loops[i].create_task(node.start())
        self.timeline.run(1)

    def ask(self, timeout_ms: int = 1_000) -> "asyncio.Task[Any]":
        asking = self.nodes[1].request(2, PeerMessage.PING, b"?", timeout_ms=timeout_ms)
        return self.loops[1].create_task(asking)


def answer(peer: int, header: bytes, frames: list[Buffer], reply: Reply) -> None:
    reply(b"!", [])


def test_virtual_peer_link_keeps_the_order_and_reports_a_death_immediately() -> None:
    links = Links()
    got: list[bytes] = []
    links.nodes[2].on_message(PeerMessage.HEARTBEAT, lambda peer, payload: got.append(payload))
    links.nodes[2].on_request(PeerMessage.PING, answer)
    for n in range(50):
        assert links.nodes[1].send(2, PeerMessage.HEARTBEAT, bytes([n]))
    asked = links.ask()
    links.timeline.run(1)
    assert got == [bytes([n]) for n in range(50)] and asked.result()[0] == b"!"
    asked = links.ask()
    links.loops[2].kill()
    links.exchange.died(2, power=False)
    links.timeline.run(0.5)
    assert isinstance(asked.exception(), PeerUnavailable)
    assert links.changes == [(2, True), (2, False)]
    assert not links.nodes[1].send(2, PeerMessage.HEARTBEAT, b"")


def test_virtual_peer_link_times_out_during_a_cut_and_stays_open_after_a_reset() -> None:
    links = Links()
    links.nodes[2].on_request(PeerMessage.PING, answer)
    links.wires.cut([(2, 1)])
    asked = links.ask()
    links.timeline.run(3)
    assert isinstance(asked.exception(), PeerTimeout) and links.changes == [(2, True)]
    links.wires.mend([(2, 1)])
    links.exchange.reset(1, 2)
    asked = links.ask()
    links.timeline.run(0.001)
    links.timeline.run(1)
    assert isinstance(asked.exception(), PeerUnavailable) or asked.result()
    assert links.changes == [(2, True)] and links.nodes[1].is_up(2)


def test_virtual_peer_link_forgets_the_size_of_messages_dropped_by_a_cut() -> None:
    """A message that was dropped by a cut no longer counts as in flight."""
    links = Links()
    links.nodes[2].on_request(PeerMessage.PING, answer, bulk=True)

    def ask() -> "asyncio.Task[Any]":
        asking = links.nodes[1].request(2, PeerMessage.PING, b"?", timeout_ms=500, bulk=True)
        return links.loops[1].create_task(asking)

    lost = [ask() for _ in range(64)]
    links.loops[1].call_soon(links.wires.cut, [(1, 2)])
    links.timeline.run(2)
    assert {type(each.exception()) for each in lost} == {PeerTimeout}
    links.wires.mend([(1, 2)])
    asked = ask()
    links.timeline.run(1)
    assert asked.result()[0] == b"!"


def write(path: Path, data: bytes, *, sync: bool = False, at: int = 0) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.pwrite(fd, data, at)
    if sync:
        os.fsync(fd)
    os.close(fd)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    os.fsync(fd)
    os.close(fd)


def test_virtual_disk_power_cut_loses_only_unsynced_changes(tmp_path: Path) -> None:
    found = set()
    for seed in range(40):
        disks = Disks(tmp_path / str(seed), Timeline(seed), [1])
        home = Path(disks.nodes[1].path)
        with disks.installed():
            write(home / "kept", b"k" * 600, sync=True)
            sync_directory(home)
            write(home / "kept", b"x" * 5_000, at=600)
            write(home / "new", b"n", sync=True)
            os.replace(home / "kept", home / "moved")
            disks.died(1)
            assert (home / "moved").read_bytes() == b"k" * 600 + b"x" * 5_000  # a crash keeps all
            disks.nodes[1].cut_power()
        is_moved = (home / "moved").exists()
        content = (home / ("moved" if is_moved else "kept")).read_bytes()
        assert is_moved is not (home / "kept").exists()
        assert content[:600] == b"k" * 600 and set(content[600:]) <= {0, ord("x")}
        assert not is_moved or (home / "new").exists()  # names are lost from the end
        found.add((is_moved, (home / "new").exists(), len(content)))
    assert len(found) > 6


def test_virtual_disk_power_cut_may_restore_removed_or_replaced_files(tmp_path: Path) -> None:
    seen = set()
    for seed in range(20):
        disks = Disks(tmp_path / str(seed), Timeline(seed), [1])
        home = Path(disks.nodes[1].path)
        with disks.installed():
            for name in ("old", "gone"):
                write(home / name, name.encode(), sync=True)
            sync_directory(home)
            write(home / "fresh", b"fresh", sync=True)
            os.replace(home / "fresh", home / "old")
            (home / "gone").unlink()
            disks.nodes[1].cut_power()
        seen.add(((home / "old").read_bytes(), (home / "gone").exists()))
    assert seen >= {(b"old", True), (b"fresh", False)} and (b"old", False) not in seen


def test_virtual_disk_of_a_dead_process_releases_its_locks_and_descriptors(tmp_path: Path) -> None:
    import fcntl

    disks = Disks(tmp_path, Timeline(1), [1])
    path = Path(disks.nodes[1].path) / ".lock"
    with disks.installed():
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = os.open(path, os.O_RDWR, 0o644)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disks.died(1)
        with pytest.raises(OSError):
            os.pwrite(held, b"late", 0)
        os.close(held)  # a finalizer may close it so, which affects no other file
        fcntl.flock(os.open(path, os.O_RDWR, 0o644), fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert path.read_bytes() == b""


def test_virtual_disk_reports_a_truncated_log_that_grows_unsynced(tmp_path: Path) -> None:
    disks = Disks(tmp_path, Timeline(1), [1])
    disk, home = disks.nodes[1], Path(disks.nodes[1].path)
    grown: list[int] = []
    disk.on_regrowth = lambda: grown.append(len(grown))
    with disks.installed():
        write(home / "0.log", b"0123456789", sync=True)
        write(home / "10.log", b"x", sync=True)
        assert not grown  # never truncated
        fd = os.open(home / "10.log", os.O_RDWR)
        os.ftruncate(fd, 0)
        os.fsync(fd)
        os.close(fd)
        write(home / "11.log", b"x", sync=True)
        assert not grown  # all older ones are synced
        write(home / "11.log", b"y", at=1)
        write(home / "12.log", b"x")
    assert grown == [0]


def test_virtual_disk_when_full_or_failing_raises_the_os_error(tmp_path: Path) -> None:
    disks = Disks(tmp_path, Timeline(1), [1])
    disk, home = disks.nodes[1], Path(disks.nodes[1].path)
    with disks.installed():
        write(home / "a", b"0123")
        disk.is_full = True
        write(home / "a", b"9")  # existing bytes can be overwritten
        for work in (lambda: write(home / "a", b"more", at=4), lambda: write(home / "b", b"")):
            with pytest.raises(OSError) as full:
                work()
            assert full.value.errno == errno.ENOSPC
        disk.is_full, disk.sync_errors = False, 1
        with pytest.raises(OSError) as failed:
            write(home / "a", b"", sync=True)
        assert failed.value.errno == errno.EIO
        write(home / "a", b"", sync=True)


def test_fault_schedule_is_the_same_for_a_seed_and_is_parsed_back_from_text() -> None:
    seen = set()
    for seed in range(60):
        faults = draw(seed, Shape(faults=20, durable=True, nodes=5))
        assert faults == draw(seed, Shape(faults=20, durable=True, nodes=5))
        assert [Fault.parse(str(fault)) for fault in faults] == faults
        seen |= {fault.kind for fault in faults}
    assert seen == {*KINDS, *ONLY_DURABLE}


def test_fault_schedule_that_fails_is_reduced_to_the_necessary_faults() -> None:
    faults = [Fault(at_s=float(n), kind="kill", target=str(n)) for n in range(20)]
    needed = {faults[3], faults[11], faults[12]}

    def again(fewer: Any) -> Outcome:
        fails = needed <= set(fewer)
        return Outcome(seed=7, shape=Shape(), names={"lost-write"} if fails else {"other"})

    failed = Outcome(seed=7, shape=Shape(), faults=faults, names={"lost-write"})
    left, runs = shrink(failed, again, runs_max=100)
    assert set(left) == needed and runs <= 100
    assert command(7, left).startswith("python -m tests.simulation.run --seed 7 --faults 'kill@3+")
    shaped = command(7, left, NAMED["dense"])
    assert "--seed 7 --shape 'seconds=15,faults=45' --faults 'kill@3+" in shaped


@pytest.mark.parametrize(
    "shape",
    [
        *NAMED.values(),
        Shape(),
        Shape(
            nodes=5, pace=2.5, durable=True, kinds=("kill",), broker=(("a.b", "1"), ("c.d", "x"))
        ),
    ],
)
def test_simulation_shape_is_parsed_back_from_its_text(shape: Shape) -> None:
    assert Shape.parse(str(shape)) == shape


@pytest.mark.parametrize("text", ["densest", "nodes=", "nodes=many", "colour=red", "parse=1"])
def test_simulation_shape_of_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Shape.parse(text)


@pytest.mark.parametrize(
    "text",
    ["kill@1+1/0:leader:log/0", "kill@1+1/0:4", "cut@1+1/0:1", "flood@1+1/0:1", "wipe@1+1/0:"],
)
def test_fault_that_cannot_happen_in_a_shape_is_refused(text: str) -> None:
    """An unknown role would let the fault affect another node."""
    with pytest.raises(ImpossibleFault):
        require_possible([Fault.parse(text)], Shape())


def test_fault_schedule_with_an_unknown_kind_is_refused() -> None:
    for kind in ("flood", "power-all"):  # this one is for durable clusters
        with pytest.raises(ImpossibleFault):
            draw(1, Shape(kinds=("kill", kind)))


def test_fault_schedule_has_only_faults_that_can_happen() -> None:
    for seed in range(60):
        for nodes in (1, 3, 5):
            shape = Shape(faults=20, durable=True, nodes=nodes)
            require_possible(draw(seed, shape), shape)
