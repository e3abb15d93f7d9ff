"""What the schedule does to the links between nodes: all of it at the nodes' own gates.

Cuts are silent, as real ones are. That a fault has met something is read from the gates' counts.
A node that is restarted meanwhile has whole links again; the next fault finds it so.
"""

import contextlib

from ..cluster.failure import Failure
from ..faults.schedule import Planned
from .stage import Action, Fault, Stage

SEEN_WITHIN_S = 2.5
WHOLE_WITHIN_S = 10.0
KEPT_KINDS = (None, "WRITE_TRANSACTION_MARKERS", "WRITE_TRANSACTION_MARKERS", "VERIFY_TRANSACTION")
# Longer than the deadline of a request between brokers: it is repeated, and then comes late.
KEPT_LONG_S = (10.5, 14.0)


def _isolate(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    alone = planned.pick(0, nodes)
    cuts = [(alone, other, True, True) for other in nodes if other != alone]
    cuts += [(other, alone, True, True) for other in nodes if other != alone]
    _cut(stage, planned, fault, cuts, f"node {alone}")


def _isolate_one_way(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    alone, is_deaf = planned.pick(0, nodes), planned.numbers[2] < 1 / 2
    cuts = [(alone, other, is_deaf, not is_deaf) for other in nodes if other != alone]
    word = "hears nobody" if is_deaf else "is heard by nobody"
    _cut(stage, planned, fault, cuts, f"node {alone} {word}")


def _cut_pair(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    one = planned.pick(0, nodes)
    other = planned.pick(2, [node for node in nodes if node != one])
    cuts = [(one, other, True, True), (other, one, True, True)]
    _cut(stage, planned, fault, cuts, f"nodes {one} and {other}")


def _majorities_ring(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    at = planned.pick(0, range(len(nodes)))
    ring = nodes[at:] + nodes[:at]
    if planned.numbers[2] < 1 / 2:
        ring.reverse()
    heard = len(ring) // 2  # of others: with itself a majority
    cuts = [
        (node, ring[(i + step) % len(ring)], True, False)
        for i, node in enumerate(ring)
        for step in range(heard + 1, len(ring))
    ]
    _cut(stage, planned, fault, cuts, " hears ".join(f"{node}" for node in [*ring, ring[0]]))


def _bisect(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    at = planned.pick(0, range(len(nodes)))
    turned = nodes[at:] + nodes[:at]
    left, right = turned[: len(nodes) // 2], turned[len(nodes) // 2 :]
    cuts = [(a, b, True, True) for a in left for b in right]
    cuts += [(b, a, True, True) for a in left for b in right]
    _cut(stage, planned, fault, cuts, f"{left} and {right}")


def _delay(stage: Stage, planned: Planned, fault: Fault) -> None:
    node_id = planned.pick(0, _nodes(stage))
    delay_ms = int(planned.between(2, 10, 250))
    requests = [
        (node_id, {"op": "delay", "peer": peer, "delay_ms": delay_ms})
        for peer in stage.cluster.node_ids
        if peer != node_id
    ]
    _break(stage, planned, fault, requests, "delayed", f"node {node_id} by {delay_ms} ms")


def _hold(stage: Stage, planned: Planned, fault: Fault) -> None:
    nodes = _nodes(stage)
    node_id = planned.pick(0, nodes)
    peer = planned.pick(2, [node for node in nodes if node != node_id])
    requests = [(node_id, {"op": "hold", "peer": peer, "inbound": False, "outbound": True})]
    _break(stage, planned, fault, requests, "held", f"node {node_id} to {peer}")


def _keep_frames(stage: Stage, planned: Planned, fault: Fault) -> None:
    """Of all messages, or of one kind; sometimes for so long that they are repeated meanwhile."""
    nodes = _nodes(stage)
    node_id, count = planned.pick(0, nodes), int(planned.between(2, 1, 6))
    kind = planned.pick(3, KEPT_KINDS)
    lasts_s = planned.between(1, *KEPT_LONG_S) if kind and planned.numbers[2] < 1 / 2 else None
    requests = [
        (node_id, {"op": "keep", "peer": peer, "count": count, "kind": kind})
        for peer in nodes
        if peer != node_id
    ]
    words = f"node {node_id}, {count} to each{f' of {kind}' if kind else ''}"
    _break(stage, planned, fault, requests, "held", words, lasts_s)


def _cut(
    stage: Stage,
    planned: Planned,
    fault: Fault,
    cuts: list[tuple[int, int, bool, bool]],
    target: str,
) -> None:
    """Cuts are (at node, peer, inbound, outbound)."""
    requests = [
        (at, {"op": "cut", "peer": peer, "inbound": inbound, "outbound": outbound})
        for at, peer, inbound, outbound in cuts
    ]
    _break(stage, planned, fault, requests, "dropped", target)


def _break(
    stage: Stage,
    planned: Planned,
    fault: Fault,
    requests: list[tuple[int, dict]],
    count: str,
    target: str,
    lasts_s: float | None = None,
) -> None:
    """Ask for all of it, see that it met something, let it last, mend it."""
    asked = sorted({node for node, _ in requests})
    before = {node: _links(stage, node)[count] for node in asked}

    def has_met() -> bool:
        for node in asked:
            with contextlib.suppress(Failure):
                if _links(stage, node)[count] > before[node]:
                    return True
        return False

    with stage.links_whole():
        try:
            for node, request in requests:
                stage.cluster.ask_node(node, request)
            stage.until(has_met, SEEN_WITHIN_S, "a message that met the fault")
            fault.hit(target)
            stage.sleep(lasts_s or planned.between(1, 0.3, 2 * stage.session_s))
        finally:
            for node in asked:
                with contextlib.suppress(Failure):  # it is down: that has healed it, too
                    stage.cluster.ask_node(node, {"op": "heal"})


def heal_links(stage: Stage) -> None:
    """Mend all links: a paused node may have slept through the mending."""
    for node in stage.running():
        with contextlib.suppress(Failure):
            stage.cluster.ask_node(node, {"op": "heal"})


def _links(stage: Stage, node_id: int) -> dict[str, int]:
    return stage.cluster.ask_node(node_id, {"op": "links"})


def _nodes(stage: Stage) -> list[int]:
    """All nodes, once all of them can be asked: one that starts has no gate yet."""

    def all_answer() -> bool:
        try:
            for node in stage.cluster.node_ids:
                if stage.cluster.node(node).status().state != "running":
                    return False
                _links(stage, node)
        except Failure:
            return False
        return True

    stage.until(all_answer, WHOLE_WITHIN_S, "a moment at which all nodes run")
    return stage.cluster.node_ids


LINK_ACTIONS: dict[str, Action] = {
    "isolate": _isolate,
    "isolate-one-way": _isolate_one_way,
    "cut-pair": _cut_pair,
    "majorities-ring": _majorities_ring,
    "bisect": _bisect,
    "delay": _delay,
    "hold": _hold,
    "keep-frames": _keep_frames,
}
