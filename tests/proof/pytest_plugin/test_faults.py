"""Test that scheduled faults undo only themselves, and no action of the test."""

import contextlib
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.schedule import Fault
from oncelog.node.admin_socket import AdminSocket
from oncelog.proof.pytest_plugin.faults import ACTIONS, ScheduledFaults
from oncelog.replication.peer.link_gate import LinkGate


class GatedCluster(Cluster):
    """A cluster of three nodes without processes, but with blocked and slow links."""

    def __init__(self) -> None:
        super().__init__(3)
        self.gates = {i: LinkGate() for i in (1, 2, 3)}
        self.states = dict.fromkeys(self.gates, "running")

    @property
    def node_ids(self) -> list[int]:
        return list(self.gates)

    def resolve(self, target: int | str, **_: Any) -> int:
        return int(target)

    def status(self) -> list[Any]:
        return [SimpleNamespace(node_id=i, state=state) for i, state in self.states.items()]

    def node(self, node_id: int) -> Any:
        return SimpleNamespace(status=lambda: self.status()[node_id - 1])

    def ask(self, work: Any) -> Any:
        return []  # no partition lacks a replica

    def ask_node(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]:
        assert self.states[node_id] == "running", "it would not answer"
        door = AdminSocket(Path(), self.gates[node_id], dict)
        return door._answer(json.dumps(request).encode())

    def cuts(self) -> set[tuple[int, int]]:
        """Return each blocked link as (node, peer)."""
        found = set()
        for node, gate in self.gates.items():
            for peer in set(self.gates) - {node}:
                came: list[int] = []
                gate.admit(peer, True, lambda came=came: came.append(1))
                if not came:
                    found.add((node, peer))
        return found


def scheduled(cluster: Cluster, *faults: Fault) -> ScheduledFaults:
    return ScheduledFaults(
        cluster, iter(faults), note=lambda _: None, lock=contextlib.nullcontext()
    )


def fault(kind: str) -> Fault:
    return Fault(kind, (0.0, 0.0, 0.0, 0.0))  # on node 1


def make_and_undo(cluster: Cluster, kind: str) -> None:
    context = scheduled(cluster)
    context.stopping.set()  # the fault has no duration
    context.make(fault(kind), ACTIONS)


def undone(node_id: int, state: str) -> tuple[GatedCluster, ScheduledFaults]:
    """End an isolation of node 1 while a node is in this state. Return cluster and faults."""
    cluster = GatedCluster()
    context = scheduled(cluster)
    cluster.partition([1], [2, 3])
    cluster.states[node_id] = state
    context.undo(fault("partition"))
    return cluster, context


def test_plugin_fault_leaves_links_that_the_test_has_cut():
    cluster = GatedCluster()
    cluster.partition([2], [3])
    make_and_undo(cluster, "partition")
    assert cluster.cuts() == {(2, 3), (3, 2)}


def test_plugin_fault_heals_its_links_after_the_test_killed_another_node():
    cluster, _ = undone(3, "down")
    assert cluster.cuts() == {(3, 1)}  # it lives in the process: a node that is down has none


def test_plugin_fault_heals_the_links_of_a_paused_node_at_its_resume():
    cluster, context = undone(2, "paused")
    assert cluster.cuts() == {(2, 1)}
    cluster.states[2] = "running"
    context.wait_until_whole()
    assert cluster.cuts() == set()


def test_plugin_fault_that_slowed_a_node_restores_its_speed():
    cluster = GatedCluster()
    cluster.partition([2], [3])
    make_and_undo(cluster, "slow")
    assert not cluster.gates[1].is_active
    assert cluster.cuts() == {(2, 3), (3, 2)}


def test_plugin_fault_waits_for_a_node_that_the_test_has_killed():
    class RestartedCluster(GatedCluster):
        checks = 0

        def status(self) -> list[Any]:
            self.checks += 1
            self.states[2] = "down" if self.checks < 3 else "running"
            return super().status()

    cluster = RestartedCluster()
    context = scheduled(cluster)
    context.make(fault("slow"), ACTIONS)
    assert context.hits == {"slow": 1} and cluster.checks >= 3


def test_plugin_run_interrupted_does_not_wait_for_a_silent_cluster():
    asked, answer = threading.Event(), threading.Event()

    class SilentCluster(GatedCluster):
        def ask(self, work: Any) -> Any:
            asked.set()
            answer.wait(20.0)
            return []

    context = scheduled(SilentCluster(), fault("slow"))
    context.thread.start()
    assert asked.wait(10.0)
    context.stop(undo=False)
    assert context.thread.is_alive()  # the stop has waited for no answer
    answer.set()
    context.thread.join(10.0)
    assert not context.thread.is_alive()
    assert context.ended == 0


def test_plugin_fault_without_an_effect_is_not_counted():
    """The test kills a node before the fault, and ends before it restarts the node."""

    class KilledMeanwhile(GatedCluster):
        checks = 0

        def status(self) -> list[Any]:
            self.checks += 1
            self.states[2] = "down" if self.checks > 1 else "running"
            return super().status()

    cluster = KilledMeanwhile()
    context = scheduled(cluster, fault("slow"))
    context.thread.start()
    deadline = time.monotonic() + 10.0
    while cluster.checks < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    context.stop()
    assert context.tried == 1 and context.hits == {}
    assert context.ended == 0  # otherwise the plugin counts a test that a fault hit


def test_plugin_wait_for_faults_after_the_test_raises():
    context = scheduled(GatedCluster())
    context.thread.start()
    context.stop()
    with pytest.raises(Failure, match="Only 0 of 1 faults were injected before the test ended"):
        context.wait(1, 60.0)
