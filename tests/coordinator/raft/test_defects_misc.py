"""Test the defects D6, D7, D9, D11 and D12 of PySyncObj, and that our engine does not have them.

They concern exceptions, membership, acknowledgements, pickle and long commands.
"""

import os
import pickle
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from pysyncobj import replicated
from pysyncobj.node import Node

from oncelog.coordinator.raft import DefinitelyNot, OutcomeUnknown
from oncelog.coordinator.raft.messages import AppendReply, MalformedMessage, decode_frame

from ...simulation.raft_simulation import SETTINGS, Machine, Violation, started
from .stock import StockList, StockNetwork

MakeStock = Callable[..., StockNetwork]


def test_pysyncobj_with_a_raising_callback_applies_twice(stock_network: MakeStock) -> None:
    """PySyncObj counts an entry as applied only after its callback has returned (defect D6)."""
    net = stock_network(5)
    leader = net.elect()

    def client_went_away(result: Any, error: int) -> None:
        raise RuntimeError

    net.objects[leader].append("once", callback=client_went_away)
    for _ in range(400):
        net.step(errors=(RuntimeError,))
    counts = {node: len(o.items) for node, o in net.objects.items()}
    assert counts[leader] > 1, "the stock library has been mended"
    assert min(counts.values()) == 1


def test_raft_callback_that_raises_does_not_stop_the_engine() -> None:
    """Callbacks of commands and of listeners raise exceptions (defect D6)."""
    cluster, leader = started()
    group = cluster.nodes[leader].engine.groups[0]

    def bad(*arguments: Any) -> None:
        raise RuntimeError("client went away")

    group.on_applied(bad)
    group.on_resigned(bad)
    group.propose(b"0-once", 1_000, bad)
    cluster.run(1)
    assert [node.machines[0].commands for node in cluster.nodes.values()] == [[b"0-once"]] * 3
    cluster.check_end()


class PoisonedList(StockList):
    """A state machine of PySyncObj with a replicated method that raises."""

    @replicated
    def poison(self) -> None:
        self.items.append("p")
        raise ValueError("bug")


def test_pysyncobj_repeats_a_failing_method_endlessly(stock_network: MakeStock) -> None:
    """The method is called again and again, and no later command is applied (defect D6)."""
    net = stock_network(5, machine=PoisonedList)
    leader = net.elect()
    net.objects[leader].poison()  # type: ignore[attr-defined]
    for _ in range(300):
        net.step(errors=(ValueError,))
    assert len(net.objects[leader].items) > 10, "the stock library has been mended"


class Poisoned(Machine):
    """A state machine that raises for one command.

    It stands for an older release that does not know the command, and for a release with a bug.
    """

    def apply(self, command: bytes, index: int, term: int) -> int:
        if command == b"0-poison":
            raise ValueError("bug")
        return super().apply(command, index, term)


def test_raft_entry_that_cannot_be_applied_stops_the_node_and_stays_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our engine neither repeats nor skips the entry (defect D6)."""
    monkeypatch.setattr("tests.simulation.raft_simulation.Machine", Poisoned)
    cluster, leader = started()
    outcomes: list[Exception | None] = []
    group = cluster.nodes[leader].engine.groups[0]
    poison_index = group.status().log_end
    group.propose(b"0-poison", 1_000, lambda result, error: outcomes.append(error))
    with pytest.raises(Violation) as stopped:
        cluster.run(1)
    words = str(stopped.value)
    assert f"entry {poison_index} of Raft group 0" in words
    assert "older version" in words and "bug" in words
    assert isinstance(outcomes[0], OutcomeUnknown)
    assert group.applied_index == poison_index - 1
    cluster.fatal.clear()
    monkeypatch.setattr("tests.simulation.raft_simulation.Machine", Machine)
    for i in cluster.ids:
        if i in cluster.nodes:
            cluster.crash(i)
        cluster.start(i)
    machines = [node.machines[0] for node in cluster.nodes.values()]
    assert cluster.run(5, lambda: all(b"0-poison" in machine.commands for machine in machines))
    cluster.check_end()


def test_pysyncobj_accepts_two_membership_changes_at_once(stock_network: MakeStock) -> None:
    """PySyncObj never enforces Raft's rule of one membership change at a time (defect D7)."""
    net = stock_network(5, dynamicMembershipChange=True)
    leader = net.elect()
    net.isolate(leader)
    net.objects[leader].addNodeToCluster(Node("D"))
    net.objects[leader].addNodeToCluster(Node("E"))
    net.objects[leader].doTick(0)
    assert len(net.objects[leader].otherNodes) == 4, "the stock library has been mended"


def test_raft_membership_is_fixed_and_frames_of_strangers_are_dropped() -> None:
    """Our engine drops each frame of an unknown node (defect D7)."""
    cluster, leader = started()
    engine = cluster.nodes[leader].engine
    term = engine.groups[0].term
    engine.receive(9, msgpack.packb([[0, 9, term + 5]]))
    assert engine.groups[0].term == term
    assert [voter.node_id for voter in engine.groups[0].status().voters] == [leader] + [
        i for i in cluster.ids if i != leader
    ]


def test_pysyncobj_accepts_an_acknowledgement_of_an_older_term(stock_network: MakeStock) -> None:
    """The acknowledgements of PySyncObj have no term (defect D9)."""
    net = stock_network(9, nodes="ABCDE")
    leader = net.elect()
    net.isolate(leader)
    outcomes: list[int] = []
    o = net.objects[leader]
    for k in range(5):
        o.append(k, callback=lambda result, error: outcomes.append(error))
    o.doTick(0)
    ack = {"type": "next_node_idx", "reset": False, "success": True}
    end = o._SyncObj__raftLog[-1][1] + 1  # type: ignore[attr-defined]
    for other in [node for node in net.nodes if node != leader][:2]:
        net.transports[leader]._onMessageReceived(Node(other), {**ack, "next_node_idx": end})
    o.doTick(0)
    assert outcomes == [0] * 5, "the stock library has been mended"


def test_raft_acknowledgement_of_an_older_term_commits_no_entry() -> None:
    """Our engine ignores forged acknowledgements of the previous term (defect D9)."""
    cluster, leader = started(9, size=5)
    cluster.isolate(leader)
    alone = {cluster.submit(leader, 0) for _ in range(5)}
    group = cluster.nodes[leader].engine.groups[0]
    end = group.status().log_end
    for other in [i for i in cluster.ids if i != leader]:
        group.receive(other, AppendReply(group.term - 1, True, end, True), cluster.world.now)
    group.advance(cluster.world.now * 1_000)
    cluster.run(0.2)
    assert not alone & cluster.history.acknowledged
    cluster.check_end()


STOCK_SERVER = """
import socket, sys, time
from pysyncobj import SyncObj, SyncObjConf
def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
own, other = free(), free()
SyncObj(f"127.0.0.1:{own}", [f"127.0.0.1:{other}"], SyncObjConf())
print(own, flush=True)
time.sleep(20)
"""


class Evil:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self._path),)


def test_pysyncobj_runs_code_of_any_client_that_connects(tmp_path: Path) -> None:
    """PySyncObj unpickles the first bytes of each connection (defect D11)."""
    command = [sys.executable, "-c", STOCK_SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        payload = zlib.compress(pickle.dumps(Evil(tmp_path / "ran")))
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(struct.pack("i", len(payload)) + payload)
            for _ in range(300):
                if (tmp_path / "ran").exists():
                    break
                server.poll()
                connection.settimeout(0.01)
                try:
                    connection.recv(1)
                except OSError:
                    continue
        server.kill()
    assert (tmp_path / "ran").exists(), "the stock library has been mended"


def test_raft_frame_of_any_bytes_neither_runs_code_nor_stops_a_node(tmp_path: Path) -> None:
    """Our engine does not use pickle, and drops malformed frames (defect D11)."""
    cluster, leader = started()
    evil = pickle.dumps(Evil(tmp_path / "ran"))
    engine = cluster.nodes[leader].engine
    for frame in (evil, zlib.compress(evil), b"", b"\xff", msgpack.packb([[0, 1, evil]])):
        with pytest.raises(MalformedMessage):
            decode_frame(frame)
        engine.receive(cluster.ids[0] if leader != cluster.ids[0] else cluster.ids[1], frame)
    assert not (tmp_path / "ran").exists()
    cluster.check_end()


def test_pysyncobj_fails_on_commands_of_certain_lengths(stock_network: MakeStock) -> None:
    """A length just below a multiple of the batch size repeats the end of the command (D12)."""
    net = stock_network(5)
    leader = net.elect()
    net.objects[leader].append("z" * (131_072 - 40))
    seen: list[Exception] = []
    for _ in range(400):
        seen += net.step(errors=(EOFError,))
    assert seen, "the stock library has been mended"


@pytest.mark.parametrize("size", [4_095, 4_096, 1_500, 1_499, 1_501, 1_436, 1_437])
def test_raft_command_of_any_length_up_to_the_limit_is_committed(size: int) -> None:
    """The lengths are around the size of an append, and at the limit (defect D12)."""
    cluster, leader = started()
    command = cluster.submit(leader, 0, size=size)
    cluster.run(1)
    assert command in cluster.history.acknowledged
    cluster.check_end()


def test_raft_command_above_the_limit_is_refused_and_not_logged() -> None:
    """The error states the limit."""
    cluster, leader = started()
    outcomes: list[Exception | None] = []
    end = cluster.nodes[leader].engine.groups[0].status().log_end
    cluster.nodes[leader].engine.groups[0].propose(
        b"x" * (SETTINGS.command_bytes_max + 1), 1_000, lambda result, error: outcomes.append(error)
    )
    assert isinstance(outcomes[0], DefinitelyNot)
    assert "exceeds 4096: split it" in str(outcomes[0])
    assert cluster.nodes[leader].engine.groups[0].status().log_end == end
