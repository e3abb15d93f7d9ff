"""Faults of the links between nodes: all of them at the nodes' own gates.

Cuts are silent, as real ones are. That a fault has met something is read from the gates' counts.
A node that is restarted meanwhile has whole links again; the next fault finds it so.
"""

import contextlib

from ..cluster.failure import Failure
from .engine import Action, FaultContext
from .schedule import Fault

SEEN_WITHIN_S = 2.5
WHOLE_WITHIN_S = 10.0
KEPT_KINDS = (None, "WRITE_TRANSACTION_MARKERS", "WRITE_TRANSACTION_MARKERS", "VERIFY_TRANSACTION")
# Longer than the deadline of a request between brokers: it is repeated, and then comes late.
KEPT_LONG_S = (10.5, 14.0)


def _isolate(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    alone = fault.pick(0, nodes)
    cuts = [(alone, other, True, True) for other in nodes if other != alone]
    cuts += [(other, alone, True, True) for other in nodes if other != alone]
    _cut(context, fault, cuts, f"node {alone}")


def _isolate_one_way(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    alone, is_deaf = fault.pick(0, nodes), fault.numbers[2] < 1 / 2
    cuts = [(alone, other, is_deaf, not is_deaf) for other in nodes if other != alone]
    word = "hears nobody" if is_deaf else "is heard by nobody"
    _cut(context, fault, cuts, f"node {alone} {word}")


def _cut_pair(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    one = fault.pick(0, nodes)
    other = fault.pick(2, [node for node in nodes if node != one])
    cuts = [(one, other, True, True), (other, one, True, True)]
    _cut(context, fault, cuts, f"nodes {one} and {other}")


def _majorities_ring(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    at = fault.pick(0, range(len(nodes)))
    ring = nodes[at:] + nodes[:at]
    if fault.numbers[2] < 1 / 2:
        ring.reverse()
    heard = len(ring) // 2  # of others: with itself a majority
    cuts = [
        (node, ring[(i + step) % len(ring)], True, False)
        for i, node in enumerate(ring)
        for step in range(heard + 1, len(ring))
    ]
    _cut(context, fault, cuts, " hears ".join(f"{node}" for node in [*ring, ring[0]]))


def _bisect(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    at = fault.pick(0, range(len(nodes)))
    turned = nodes[at:] + nodes[:at]
    left, right = turned[: len(nodes) // 2], turned[len(nodes) // 2 :]
    cuts = [(a, b, True, True) for a in left for b in right]
    cuts += [(b, a, True, True) for a in left for b in right]
    _cut(context, fault, cuts, f"{left} and {right}")


def _delay(context: FaultContext, fault: Fault) -> None:
    node_id = fault.pick(0, _nodes(context))
    delay_ms = int(fault.between(2, 10, 250))
    requests = [
        (node_id, {"op": "delay", "peer": peer, "delay_ms": delay_ms})
        for peer in context.cluster.node_ids
        if peer != node_id
    ]
    _break(context, fault, requests, "delayed", f"node {node_id} by {delay_ms} ms")


def _hold(context: FaultContext, fault: Fault) -> None:
    nodes = _nodes(context)
    node_id = fault.pick(0, nodes)
    peer = fault.pick(2, [node for node in nodes if node != node_id])
    requests = [(node_id, {"op": "hold", "peer": peer, "inbound": False, "outbound": True})]
    _break(context, fault, requests, "held", f"node {node_id} to {peer}")


def _keep_frames(context: FaultContext, fault: Fault) -> None:
    """Of all messages, or of one kind; sometimes for so long that they are repeated meanwhile."""
    nodes = _nodes(context)
    node_id, count = fault.pick(0, nodes), int(fault.between(2, 1, 6))
    kind = fault.pick(3, KEPT_KINDS)
    lasts_s = fault.between(1, *KEPT_LONG_S) if kind and fault.numbers[2] < 1 / 2 else None
    requests = [
        (node_id, {"op": "keep", "peer": peer, "count": count, "kind": kind})
        for peer in nodes
        if peer != node_id
    ]
    words = f"node {node_id}, {count} to each{f' of {kind}' if kind else ''}"
    _break(context, fault, requests, "held", words, lasts_s)


def _cut(
    context: FaultContext,
    fault: Fault,
    cuts: list[tuple[int, int, bool, bool]],
    target: str,
) -> None:
    """Cuts are (at node, peer, inbound, outbound)."""
    requests = [
        (at, {"op": "cut", "peer": peer, "inbound": inbound, "outbound": outbound})
        for at, peer, inbound, outbound in cuts
    ]
    _break(context, fault, requests, "dropped", target)


def _break(
    context: FaultContext,
    fault: Fault,
    requests: list[tuple[int, dict]],
    count: str,
    target: str,
    lasts_s: float | None = None,
) -> None:
    """Ask for all of it, see that it met something, let it last, mend it."""
    asked = sorted({node for node, _ in requests})
    before = {node: _links(context, node)[count] for node in asked}

    def has_met() -> bool:
        for node in asked:
            with contextlib.suppress(Failure):
                if _links(context, node)[count] > before[node]:
                    return True
        return False

    with context.links_in_use:
        try:
            for node, request in requests:
                context.cluster.ask_node(node, request)
            context.until(has_met, SEEN_WITHIN_S, "a message that met the fault")
            context.hit(fault, target)
            context.sleep(lasts_s or fault.between(1, 0.3, 2 * context.session_s))
        finally:
            for node in asked:
                with contextlib.suppress(Failure):  # it is down: that has healed it, too
                    context.cluster.ask_node(node, {"op": "heal"})


def heal_links(context: FaultContext) -> None:
    """Mend all links: a paused node may have slept through the mending."""
    for status in context.cluster.status():
        if status.state == "running":
            with contextlib.suppress(Failure):
                context.cluster.ask_node(status.node_id, {"op": "heal"})


def _links(context: FaultContext, node_id: int) -> dict[str, int]:
    return context.cluster.ask_node(node_id, {"op": "links"})


def _nodes(context: FaultContext) -> list[int]:
    """All nodes, once all of them can be asked: one that starts has no gate yet."""

    def all_answer() -> bool:
        try:
            for node in context.cluster.node_ids:
                if context.cluster.node(node).status().state != "running":
                    return False
                _links(context, node)
        except Failure:
            return False
        return True

    context.until(all_answer, WHOLE_WITHIN_S, "a moment at which all nodes run")
    return context.cluster.node_ids


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
