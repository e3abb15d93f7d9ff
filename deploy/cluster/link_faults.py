"""Cuts and delays of the links between nodes, injected by the nodes themselves.

`cut` affects all of its nodes or none. A node holds its link faults only in memory, so a
restarted node has no link faults.
"""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Protocol

from .advice import shell_command
from .failure import Failure
from .node_process import NodeProcess

Fault = Mapping[str, Any]
"""One direction of a link as its node reports it: peer, is_outbound, is_cut, is_held, delay_ms."""
Request = tuple[int, dict[str, Any]]


class LinkedCluster(Protocol):
    """The methods of a cluster that link faults use."""

    def ask_node(self, node_id: int, request: dict[str, Any]) -> dict[str, Any]: ...

    def node(self, node_id: int) -> NodeProcess: ...


def cut(
    cluster: LinkedCluster, one: Iterable[int], other: Iterable[int], *, one_way: bool = False
) -> None:
    """Cut the links between two groups of nodes, with `one_way` only from `one` to `other`.

    If a node does not answer, the cuts that were made are undone, and Failure is raised.
    """
    left, right = list(one), list(other)
    if both := set(left) & set(right):
        raise Failure(f"Node {min(both)} is on both sides: nothing was cut.", exit_code=2)
    before = {node: _faults_or_refusal(cluster, node) for node in sorted({*left, *right})}
    request = {"op": "cut", "inbound": not one_way, "outbound": True}
    requests = [(a, {**request, "peer": b}) for a, b in product(left, right)]
    if not one_way:
        requests += [(b, {**request, "peer": a}) for a, b in product(left, right)]
    made: list[Request] = []
    try:
        for node, asked in requests:
            made.append((node, asked))
            cluster.ask_node(node, asked)
    except BaseException as problem:
        silent: set[int] = set()
        for node, asked in made:
            try:
                _restore(cluster, node, asked["peer"], before[node])
            except Failure:  # one that is gone has lost its faults
                silent |= {node} if cluster.node(node).find() is not None else set()
        if isinstance(problem, Failure):
            left = "Nothing was cut."
            if silent:
                which = ", ".join(map(str, sorted(silent)))
                left = f"Node {which} may keep a cut; end it with: {shell_command('heal')}"
            raise Failure(f"{problem} {left}") from None
        raise


def faults_of(cluster: LinkedCluster, node_id: int) -> list[Fault]:
    """Return the faults on a node's links, or raise Failure if the node does not answer."""
    return cluster.ask_node(node_id, {"op": "links"}).get("faults", [])


def in_words(faults: Iterable[Fault], others: int) -> str:
    """Return a node's link faults as text for `ps`, such as "cut from 2,3".

    others: the number of the node's peers.
    """
    by_words: dict[str, list[int]] = {}
    by_peer: dict[int, dict[bool, Fault]] = {}
    for fault in faults:
        by_peer.setdefault(fault["peer"], {})[fault["is_outbound"]] = fault
    for peer in sorted(by_peer):
        for words in _of_a_peer(by_peer[peer]):
            by_words.setdefault(words, []).append(peer)
    told: list[str] = []
    for words, peers in by_words.items():
        text, _, preposition = words.rpartition(" ")
        is_all = text.endswith("late") and len(peers) == others
        told.append(text if is_all else f"{text} {preposition} {','.join(map(str, peers))}")
    return "; ".join(told)


def _of_a_peer(links: Mapping[bool, Fault]) -> Iterable[str]:
    """Yield words for the faults of the links with one peer, such as "cut from".

    The caller adds the peer's number. `links` has the fault of each direction, with the key True
    for the outbound link.
    """
    cuts = [is_outbound for is_outbound, fault in sorted(links.items()) if fault["is_cut"]]
    if len(cuts) == 2:
        yield "cut from"
    elif cuts:
        yield "sends nothing to" if cuts[0] else "gets nothing from"
    for is_outbound, fault in sorted(links.items()):
        if fault["delay_ms"]:
            yield f"{fault['delay_ms']} ms late {'to' if is_outbound else 'from'}"
        if fault["is_held"]:
            yield f"holds messages {'to' if is_outbound else 'from'}"


def _faults_or_refusal(cluster: LinkedCluster, node_id: int) -> list[Fault]:
    state = cluster.node(node_id).status().state
    if state != "running":
        verb = "resume" if state == "paused" else "start"
        raise Failure(
            f"Nothing was cut: node {node_id} is {state}. Leave it out, or first: "
            f"{shell_command(verb, node_id)}"
        )
    try:
        return faults_of(cluster, node_id)
    except Failure as problem:
        raise Failure(f"Nothing was cut. {problem}") from None


def _restore(cluster: LinkedCluster, node_id: int, peer: int, before: Iterable[Fault]) -> None:
    cluster.ask_node(node_id, {"op": "heal", "peer": peer})
    for fault in [fault for fault in before if fault["peer"] == peer]:
        is_outbound, delay_ms = fault["is_outbound"], fault["delay_ms"]
        if fault["is_cut"]:
            way = {"inbound": not is_outbound, "outbound": is_outbound}
            cluster.ask_node(node_id, {"op": "cut", "peer": peer, **way})
        if delay_ms and is_outbound:
            cluster.ask_node(node_id, {"op": "delay", "peer": peer, "delay_ms": delay_ms})
