"""The faults of a test end what they did themselves, and nothing that the test did."""

import contextlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.pytest_plugin.faults import DrawnFault, Faults
from oncelog.node.admin_socket import AdminSocket
from oncelog.replication.peer.link_gate import LinkGate


class GatedCluster(Cluster):
    """Three nodes of which there are only the doors, and the gates behind them."""

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
        return []  # no partition wants anything

    def ask_node(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]:
        assert self.states[node_id] == "running", "it would not answer"
        door = AdminSocket(Path(), self.gates[node_id], dict)
        return door._answer(json.dumps(request).encode())

    def cuts(self) -> set[tuple[int, int]]:
        """The links through which nothing comes, as (node, peer)."""
        found = set()
        for node, gate in self.gates.items():
            for peer in set(self.gates) - {node}:
                came: list[int] = []
                gate.admit(peer, True, lambda came=came: came.append(1))
                if not came:
                    found.add((node, peer))
        return found


def faults(cluster: Cluster) -> Faults:
    return Faults(cluster, iter(()), tell=lambda _: None, alone=contextlib.nullcontext())


def fault(kind: str) -> DrawnFault:
    return DrawnFault(kind, node_id=1, after_s=0.0, lasts_s=0.0, delay_ms=5)


def undone(node_id: int, state: str) -> tuple[GatedCluster, Faults]:
    """Node 1 was cut off, and is to be mended while another one is in this state."""
    cluster = GatedCluster()
    striking = faults(cluster)
    cluster.partition([1], [2, 3])
    cluster.states[node_id] = state
    striking._undo(fault("partition"))
    return cluster, striking


def test_links_that_the_test_has_cut_stay_cut():
    cluster = GatedCluster()
    cluster.partition([2], [3])
    faults(cluster)._strike(fault("partition"))
    assert cluster.cuts() == {(2, 3), (3, 2)}


def test_links_are_mended_when_the_test_has_killed_another_node():
    cluster, _ = undone(3, "down")
    assert cluster.cuts() == {(3, 1)}  # it lives in the process: a node that is down has none


def test_the_links_of_a_paused_node_are_mended_when_it_goes_on():
    cluster, striking = undone(2, "paused")
    assert cluster.cuts() == {(2, 1)}
    cluster.states[2] = "running"
    striking._wait_until_whole()
    assert cluster.cuts() == set()


def test_a_node_that_was_slowed_is_as_quick_as_before():
    cluster = GatedCluster()
    cluster.partition([2], [3])
    faults(cluster)._strike(fault("slow"))
    assert not cluster.gates[1].is_active
    assert cluster.cuts() == {(2, 3), (3, 2)}


def test_an_interrupted_run_does_not_wait_for_a_cluster_that_does_not_answer():
    asked, answer = threading.Event(), threading.Event()

    class SilentCluster(GatedCluster):
        def ask(self, work: Any) -> Any:
            asked.set()
            answer.wait(20.0)
            return []

    striking = Faults(
        SilentCluster(), iter([fault("slow")]), tell=lambda _: None, alone=contextlib.nullcontext()
    )
    striking.start()
    assert asked.wait(10.0)
    striking.stop(undo=False)
    assert striking._thread.is_alive()  # it has waited for no answer
    answer.set()
    striking._thread.join(10.0)
    assert not striking._thread.is_alive()
    assert striking.struck == 0
