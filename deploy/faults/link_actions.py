"""Faults of the links between nodes, executed in the nodes themselves.

A cut link is silent, as in a real network. The nodes count affected messages, which proves the
effect of a fault. A node that is restarted during a fault loses the fault.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from ..cluster.failure import Failure
from .engine import Action, FaultContext
from .schedule import Fault

SEEN_WITHIN_S = 2.5
WHOLE_WITHIN_S = 10.0
KEPT_KINDS = (None, "WRITE_TRANSACTION_MARKERS", "WRITE_TRANSACTION_MARKERS", "VERIFY_TRANSACTION")
# Longer than the deadline of a request between brokers, so the request is repeated and arrives
# late.
KEPT_LONG_S = (10.5, 14.0)
Cut = tuple[int, int, bool, bool]
"""At which node, its peer, inbound, outbound."""


class Break(NamedTuple):
    """A planned fault of links, with the requests to send, as (node, request).

    effect: the nodes' counter that shows the effect. target: a description. lasts_s: None for a
    random time.
    """

    requests: list[tuple[int, dict[str, Any]]]
    effect: str
    target: str
    lasts_s: float | None = None


def _isolate(nodes: list[int], fault: Fault) -> Break:
    alone, *others = fault.turned(0, nodes)
    return _cut(_both_ways([alone], others), f"node {alone}")


def _isolate_one_way(nodes: list[int], fault: Fault) -> Break:
    alone, *others = fault.turned(0, nodes)
    is_deaf = fault.numbers[2] < 1 / 2
    word = "receives no messages" if is_deaf else "reaches no other node"
    return _cut([(alone, other, is_deaf, not is_deaf) for other in others], f"node {alone} {word}")


def _cut_pair(nodes: list[int], fault: Fault) -> Break:
    one, other = _pair(nodes, fault)
    return _cut(_both_ways([one], [other]), f"nodes {one} and {other}")


def _majorities_ring(nodes: list[int], fault: Fault) -> Break:
    ring = fault.turned(0, nodes)
    if fault.numbers[2] < 1 / 2:
        ring.reverse()
    heard = len(ring) // 2  # other nodes, which are a majority together with the node itself
    cuts = [
        (node, ring[(i + step) % len(ring)], True, False)
        for i, node in enumerate(ring)
        for step in range(heard + 1, len(ring))
    ]
    return _cut(cuts, " hears ".join(f"{node}" for node in [*ring, ring[0]]))


def _bisect(nodes: list[int], fault: Fault) -> Break:
    turned = fault.turned(0, nodes)
    left, right = turned[: len(nodes) // 2], turned[len(nodes) // 2 :]
    return _cut(_both_ways(left, right), f"{left} and {right}")


def _delay(nodes: list[int], fault: Fault) -> Break:
    node_id, *peers = fault.turned(0, nodes)
    delay_ms = int(fault.between(2, 10, 250))
    requests = [(node_id, {"op": "delay", "peer": peer, "delay_ms": delay_ms}) for peer in peers]
    return Break(requests, "delayed", f"node {node_id} by {delay_ms} ms")


def _hold(nodes: list[int], fault: Fault) -> Break:
    node_id, peer = _pair(nodes, fault)
    request = {"op": "hold", "peer": peer, "inbound": False, "outbound": True}
    return Break([(node_id, request)], "held", f"node {node_id} to {peer}")


def _keep_frames(nodes: list[int], fault: Fault) -> Break:
    """Plan to hold some messages from a node to each peer, while later messages are sent.

    They are messages of any kind or of one random kind. Half of the plans for one kind last long
    enough for the sender to repeat the held messages.
    """
    node_id, *peers = fault.turned(0, nodes)
    count, kind = int(fault.between(2, 1, 6)), fault.pick(3, KEPT_KINDS)
    lasts_s = fault.between(1, *KEPT_LONG_S) if kind and fault.numbers[2] < 1 / 2 else None
    keep = {"op": "keep", "count": count, "kind": kind}
    words = f"node {node_id}, {count} to each{f' of {kind}' if kind else ''}"
    return Break([(node_id, {**keep, "peer": peer}) for peer in peers], "held", words, lasts_s)


def _pair(nodes: list[int], fault: Fault) -> tuple[int, int]:
    one = fault.pick(0, nodes)
    return one, fault.pick(2, [node for node in nodes if node != one])


def _both_ways(left: list[int], right: list[int]) -> list[Cut]:
    pairs = list(product(left, right))
    return [(a, b, True, True) for a, b in [*pairs, *((b, a) for a, b in pairs)]]


def _cut(cuts: list[Cut], target: str) -> Break:
    requests = [
        (at, {"op": "cut", "peer": peer, "inbound": inbound, "outbound": outbound})
        for at, peer, inbound, outbound in cuts
    ]
    return Break(requests, "dropped", target)


def _make(plan: Callable[[list[int], Fault], Break], context: FaultContext, fault: Fault) -> None:
    """Inject a planned fault of links, and end the fault after its time.

    Raises EffectNotSeen if no message was affected.
    """
    chosen = plan(_nodes(context), fault)
    asked = sorted({node for node, _ in chosen.requests})
    before = {node: _links(context, node)[chosen.effect] for node in asked}

    def has_met() -> bool:
        for node in asked:
            with contextlib.suppress(Failure):
                if _links(context, node)[chosen.effect] > before[node]:
                    return True
        return False

    with context.links_in_use:
        try:
            for node, request in chosen.requests:
                context.cluster.ask_node(node, request)
            context.until(has_met, SEEN_WITHIN_S, "a message that met the fault")
            lasts_s = chosen.lasts_s or fault.between(1, 0.3, 2 * context.session_s)
            context.hit(fault, chosen.target, lasts_s)
        finally:
            _heal(context, asked)


def _heal(context: FaultContext, nodes: list[int]) -> None:
    for node in nodes:
        with contextlib.suppress(Failure):  # it is down, which heals it, too
            context.cluster.ask_node(node, {"op": "heal"})


def heal_links(context: FaultContext) -> None:
    """End all link faults of the running nodes.

    A node that was paused when its fault ended may still have the fault.
    """
    _heal(context, [s.node_id for s in context.cluster.status() if s.state == "running"])


def _links(context: FaultContext, node_id: int) -> dict[str, int]:
    return context.cluster.ask_node(node_id, {"op": "links"})


def _nodes(context: FaultContext) -> list[int]:
    """Wait until all nodes answer, and return them.

    A node that is starting cannot have faults yet.
    """

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


PLANS = {
    "isolate": _isolate,
    "isolate-one-way": _isolate_one_way,
    "cut-pair": _cut_pair,
    "majorities-ring": _majorities_ring,
    "bisect": _bisect,
    "delay": _delay,
    "hold": _hold,
    "keep-frames": _keep_frames,
}
LINK_ACTIONS: dict[str, Action] = {kind: partial(_make, plan) for kind, plan in PLANS.items()}
