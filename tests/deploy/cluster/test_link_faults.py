"""Test that a link is cut on all nodes or on none, and that faults are described in words."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.cluster import link_faults
from oncelog.deploy.cluster.failure import Failure
from oncelog.replication.peer.link_gate import LinkGate


class FakeCluster:
    """Three nodes with link faults. Node `deaf` refuses to cut a link, but lists its faults."""

    def __init__(self, *, states: dict[int, str] | None = None, deaf: int | None = None) -> None:
        self.gates = {node: LinkGate() for node in (1, 2, 3)}
        self.states, self.deaf = states or {}, deaf

    def node(self, node_id: int) -> Any:
        status = SimpleNamespace(state=self.states.get(node_id, "running"))
        return SimpleNamespace(status=lambda: status)

    def ask_node(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]:
        gate = self.gates[node_id]
        match request:
            case {"op": "links"}:
                return {"faults": gate.faults()}
            case {"op": "heal", "peer": peer}:
                gate.heal(peer)
            case {"op": "delay", "peer": peer, "delay_ms": delay_ms}:
                gate.delay(peer, delay_ms)
            case {"op": "cut", "peer": peer, **ways} if node_id != self.deaf:
                gate.cut(peer, **ways)
            case _:
                raise Failure(f"Node {node_id} does not answer.")
        return {}

    def words(self) -> dict[int, str]:
        found = {n: link_faults.in_words(gate.faults(), 2) for n, gate in self.gates.items()}
        return {node: words for node, words in found.items() if words}


def cut(cluster: FakeCluster, one: list[int], other: list[int], *, one_way: bool = False) -> None:
    link_faults.cut(cluster, one, other, one_way=one_way)  # type: ignore[arg-type]


def test_cut_link_is_reported_by_nodes_on_both_sides() -> None:
    cluster = FakeCluster()
    cut(cluster, [1, 2], [3])
    assert cluster.words() == {1: "cut from 3", 2: "cut from 3", 3: "cut from 1,2"}


def test_cut_link_in_one_direction_is_reported_only_by_the_side_that_is_not_heard() -> None:
    cluster = FakeCluster()
    cut(cluster, [1], [2, 3], one_way=True)
    assert cluster.words() == {1: "sends nothing to 2,3"}


def test_slowed_and_held_links_are_reported() -> None:
    gate = LinkGate()
    gate.delay(2, 300)
    assert link_faults.in_words(gate.faults(), 2) == "300 ms late to 2"
    gate.delay(3, 300)
    assert link_faults.in_words(gate.faults(), 2) == "300 ms late"
    gate.hold(1, outbound=False)
    assert link_faults.in_words(gate.faults(), 2) == "holds messages from 1; 300 ms late"
    gate.heal()
    assert gate.faults() == []


@pytest.mark.parametrize("state", ["down", "paused"])
def test_link_cut_with_an_unreachable_node_changes_no_link(state: str) -> None:
    cluster = FakeCluster(states={2: state})
    with pytest.raises(Failure, match=f"Nothing was cut: node 2 is {state}") as refusal:
        cut(cluster, [1, 2], [3])
    assert f"oncelog {'start' if state == 'down' else 'resume'} 2" in str(refusal.value)
    assert cluster.words() == {}


def test_link_cut_that_fails_midway_is_undone_and_keeps_earlier_faults() -> None:
    cluster = FakeCluster(deaf=3)
    cut(cluster, [1], [2])
    cluster.gates[1].delay(3, 70)
    before = cluster.words()
    with pytest.raises(Failure, match=r"does not answer\. Nothing was cut"):
        cut(cluster, [1, 2], [3])
    assert cluster.words() == before


def test_link_cut_with_a_node_on_both_sides_is_refused() -> None:
    with pytest.raises(Failure, match="Node 2 is on both sides"):
        cut(FakeCluster(), [1, 2], [2, 3])
