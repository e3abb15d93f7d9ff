"""The links between simulated brokers, with the interface of `PeerTransport` but no sockets.

A broker opens one connection to each peer, with two ordered channels. Messages to an unconnected
peer are not queued. Messages on a connection that breaks are lost, or arrive among messages of the
next connection. The bytes in flight are bounded. After a kill the connections break immediately,
and new ones are refused. During a cut or a power failure messages disappear silently. Only Raft
frames may be repeated or overtake one another, which the Raft engine has to tolerate.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from zlib import crc32

from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.handlers import (
    Answered,
    Body,
    Buffer,
    PeerError,
    PeerHandlers,
    PeerUnavailable,
    What,
)
from oncelog.replication.peer.link_state import GRACE_MS, LinkState
from oncelog.replication.peer.requests import RequestsUnderWay

from .virtual_loop import ProcessLoop
from .wires import Wires

RECONNECT_S = (0.015, 0.1)
LATE = 0.7  # share of messages of a broken connection that arrive all the same, ...
LATE_S = (0.001, 4.0)  # ... so much later: beside those of the next connection
QUEUE_MESSAGES = {False: 4096, True: 64}


class _Dialled:
    """The state of a connection that one broker opened to another."""

    __slots__ = ("is_up", "number", "state", "under_way")

    def __init__(self) -> None:
        self.state = LinkState()
        self.is_up = False
        self.number = 0  # of this making; messages of an earlier one are lost
        self.under_way = {False: 0, True: 0}


class Exchange:
    """The transports of all running nodes, by node id."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires
        self.nodes: dict[int, VirtualLinks] = {}
        self.bytes_sent = 0

    def died(self, node_id: int, *, power: bool) -> None:
        """Remove the transport of a dead process. After a power cut the peers do not notice."""
        gone = self.nodes.pop(node_id, None)
        if gone is not None and not power:
            for node in self.nodes.values():
                if not self.wires.is_cut(node_id, node.node_id):
                    delay = self.wires.delay(node_id, node.node_id)
                    node.loop.call_later(delay, node.broken, node_id, gone.incarnation)

    def arrived(self, newcomer: "VirtualLinks") -> None:
        """Add the transport of a started process. Other nodes connect to it after a while."""
        rng = newcomer.loop.timeline.random
        for node in self.nodes.values():
            if node is not newcomer:
                node.loop.call_later(rng.uniform(*RECONNECT_S), node.dial, newcomer.node_id)

    def reset(self, one: int, other: int) -> None:
        """Break the connections between two nodes, which then connect again."""
        for near, far in ((one, other), (other, one)):
            node, peer = self.nodes.get(near), self.nodes.get(far)
            if node is not None and peer is not None:
                node.loop.call_soon(node.broken, far, peer.incarnation)


class VirtualLinks(PeerHandlers):
    """The transport of one broker, in place of replication.peer.transport.PeerTransport."""

    def __init__(
        self, node_id: int, peers: Iterable[int], exchange: Exchange, loop: ProcessLoop
    ) -> None:
        super().__init__(node_id)
        self.loop = loop
        self.incarnation = loop.timeline.random.getrandbits(48)
        self.peers = frozenset(peers) - {node_id}
        self.bytes_sent: dict[int, int] = dict.fromkeys(sorted(self.peers), 0)
        self.bytes_received: dict[int, int] = dict.fromkeys(sorted(self.peers), 0)
        self._exchange = exchange
        self._dialled = {peer: _Dialled() for peer in sorted(self.peers)}
        self._known: dict[int, int] = {}  # peer -> the connected incarnation
        self._under_way = RequestsUnderWay(loop, 0)  # type: ignore[arg-type]
        self._last_arrival: dict[tuple[int, bool, bool], float] = {}
        self._is_listening = False

    async def start(self) -> None:
        """Listen, and begin to connect."""
        self._is_listening = True
        exchange = self._exchange
        former = exchange.nodes.get(self.node_id)
        assert former is None or not former.loop.is_alive
        exchange.nodes[self.node_id] = self
        exchange.arrived(self)
        for peer in self._dialled:
            self.loop.call_later(self._reconnect_s(), self.dial, peer)

    async def stop(self) -> None:
        """Close all links. Requests in flight end with PeerUnavailable."""
        self._is_listening = False
        self._under_way.fail(PeerUnavailable("this broker is stopping"))
        if self._exchange.nodes.get(self.node_id) is self:
            self._exchange.died(self.node_id, power=False)

    def is_up(self, peer: int) -> bool:
        return self._dialled[peer].state.is_up

    def send(self, peer: int, kind: int, payload: bytes) -> bool:
        dialled = self._dialled.get(peer)
        if dialled is None or not dialled.is_up or dialled.under_way[False] >= 4096:
            return False
        wires, rng = self._exchange.wires, self.loop.timeline.random
        is_raft = kind == PeerMessage.RAFT
        copies = 2 if is_raft and wires.repetition and rng.random() < wires.repetition else 1
        for _ in range(copies):
            in_order = not (is_raft and wires.disorder and rng.random() < wires.disorder)
            self._post(peer, dialled, False, (What.ONE_WAY, kind, 0, payload, ()), in_order)
        return True

    def ask(
        self,
        peer: int,
        kind: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        *,
        answered: Answered,
        timeout_ms: int,
        bulk: bool = False,
    ) -> None:
        dialled = self._dialled.get(peer)
        number = self._under_way.add(answered, dialled, peer, timeout_ms)
        if dialled is None or not self._is_listening:
            reason = f"broker {peer} is not a peer, or this one is stopped"
            self._under_way.end(number, PeerUnavailable(reason))
        elif not dialled.is_up or dialled.under_way[bulk] >= QUEUE_MESSAGES[bulk]:
            self._under_way.end(number, PeerUnavailable(f"no connection to broker {peer}"))
        else:
            self._post(peer, dialled, bulk, (What.REQUEST, kind, number, header, frames), True)

    # -- connections

    def dial(self, peer: int) -> None:
        """Try to connect to a peer, again and again until connected or the peer counts as down."""
        dialled, there = self._dialled[peer], self._exchange.nodes.get(peer)
        if not self._is_listening:
            return
        wires = self._exchange.wires
        if there is not None and self._known.get(peer) not in (None, there.incarnation):
            self._break(peer)  # the peer restarted before its absence was noticed
        if dialled.is_up:
            return
        is_cut = wires.is_cut(self.node_id, peer) or wires.is_cut(peer, self.node_id)
        if is_cut or peer in wires.silent:
            self.loop.call_later(0.2, self.dial, peer)
        elif there is None:
            if dialled.state.refused():
                self._changed(peer, False)
            elif dialled.state.is_up:
                self.loop.call_later(self._reconnect_s(), self.dial, peer)
        else:
            dialled.is_up = True
            dialled.number += 1
            self._known[peer] = there.incarnation
            if dialled.state.connected():
                self._changed(peer, True)
            self._link_changed(peer, True)

    def broken(self, peer: int, incarnation: int) -> None:
        """Handle a broken connection to this process of a peer. Connect to the peer again later."""
        if self._known.get(peer) == incarnation:
            self._break(peer)
            self.loop.call_later(self._reconnect_s(), self.dial, peer)

    def _break(self, peer: int) -> None:
        dialled = self._dialled[peer]
        self._known.pop(peer, None)
        if not dialled.is_up:
            return
        dialled.is_up = False
        dialled.number += 1
        dialled.under_way = {False: 0, True: 0}
        broke = PeerUnavailable(f"the connection to broker {peer} broke")
        self._under_way.fail(broke, dialled)
        dialled.state.closed(self._now_ms())
        self.loop.call_later((GRACE_MS + 1) / 1000, self._grace_over, peer, dialled.state)
        self._link_changed(peer, False)

    def _grace_over(self, peer: int, state: LinkState) -> None:
        if self._is_listening and state.grace_over(self._now_ms()):
            self._changed(peer, False)

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1_000)

    def _reconnect_s(self) -> float:
        return self.loop.timeline.random.uniform(*RECONNECT_S)

    # -- messages: (what, kind, number, header, frames)

    def _post(
        self, peer: int, dialled: _Dialled, bulk: bool, message: tuple, in_order: bool
    ) -> None:
        there = self._exchange.nodes.get(peer)
        self.bytes_sent[peer] += len(message[3]) + sum(map(len, message[4]))
        dialled.under_way[bulk] += 1
        if there is None or there.incarnation != self._known.get(peer):
            return  # the peer is gone, which is not noticed yet
        kept_until = None
        if message[0] == What.REQUEST and not bulk:
            kept_until = self._exchange.wires.kept_until(self.node_id, peer, message[1])
        arrival = kept_until or self._arrival(peer, (peer, bulk, True), message, in_order)
        if arrival is None:
            dialled.under_way[bulk] -= 1
        else:
            way = (self, dialled, dialled.number, bulk)
            there.loop.call_at(arrival, there._arrive, way, message)

    def _arrival(
        self, peer: int, channel: tuple[int, bool, bool], message: tuple, in_order: bool
    ) -> float | None:
        wires, timeline = self._exchange.wires, self.loop.timeline
        header, frames = message[3], message[4]
        size = len(header) + sum(map(len, frames))
        self._exchange.bytes_sent += size
        timeline.note(3, self.node_id, peer, int(message[0]), message[1], size, crc32(header))
        if wires.is_cut(self.node_id, peer):
            return None
        if wires.loss and timeline.random.random() < wires.loss:
            return None
        arrival = timeline.now + wires.delay(self.node_id, peer)
        if in_order:
            arrival = max(arrival, self._last_arrival.get(channel, 0.0))
            self._last_arrival[channel] = arrival
        else:
            arrival += timeline.random.uniform(0.0, 0.03)
        return arrival

    def _arrive(
        self,
        way: tuple["VirtualLinks", _Dialled, int, bool],
        message: tuple,
        is_late: bool = False,
    ) -> None:
        sender, dialled, number, bulk = way
        peer = sender.node_id
        if dialled.number == number:
            dialled.under_way[bulk] -= 1  # also for dropped messages, which are no longer under way
        if self._exchange.wires.is_cut(peer, self.node_id):
            return
        if dialled.number != number and not is_late:
            rng = self.loop.timeline.random
            if rng.random() < LATE:
                late_s = LATE_S[0] * (LATE_S[1] / LATE_S[0]) ** rng.random()
                self.loop.call_later(late_s, self._arrive, way, message, True)
            return
        what, kind, correlation, header, frames = message
        self.bytes_received[peer] += len(header)
        if what == What.ONE_WAY:
            self._deliver(peer, kind, header)
        else:
            reply = partial(self._reply, sender, dialled, number, bulk, correlation)
            self._asked(peer, (kind, bulk), header, _owned(frames), reply)

    def _reply(
        self,
        asker: "VirtualLinks",
        dialled: _Dialled,
        number: int,
        bulk: bool,
        correlation: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        what: What = What.REPLY,
    ) -> bool:
        if dialled.number != number or not asker.loop.is_alive or not self.loop.is_alive:
            return False
        self.bytes_sent[asker.node_id] += len(header) + sum(map(len, frames))
        message = (what, 0, correlation, header, frames)
        arrival = self._arrival(asker.node_id, (asker.node_id, bulk, False), message, True)
        if arrival is not None:
            body = (header, _owned(frames))
            asker.loop.call_at(arrival, asker._answered, self, dialled, number, message, body)
        return True

    def _answered(
        self, peer: "VirtualLinks", dialled: _Dialled, number: int, message: tuple, body: Body
    ) -> None:
        if dialled.number != number or self._exchange.wires.is_cut(peer.node_id, self.node_id):
            return
        outcome: Body | PeerError = body
        if message[0] != What.REPLY:
            reason = body[0].decode(errors="replace")
            outcome = PeerUnavailable(f"broker {peer.node_id} failed: {reason}")
        if not self._under_way.replied(message[2], dialled, outcome):
            self.dropped["late"] += 1


def _owned(frames: Sequence[Buffer]) -> list[Buffer]:
    """Return copies of frames, since a receiver may change them."""
    return [memoryview(bytes(frame)) for frame in frames]
