"""Faults on the links between brokers, for tests and `oncelog partition | slow`.

A cut link is silent, like a real cut. The sender gets no error, and the connection is not reset.
Held messages are delivered in order by `heal`. Delayed messages arrive in order, each after at
least the delay. Single messages can be held while later messages overtake them, as messages of a
lost connection are overtaken by those of the next one. The counts show whether a fault has affected
any message. A gate without faults costs its transport one attribute read for each message.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

HELD_MAX = 10_000  # for each peer and direction; further messages are lost, as in a full queue


class DelayScheduler(Protocol):
    """The methods of an event loop by which a message is delayed."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> object: ...


@dataclass(slots=True)
class _Direction:
    is_cut: bool = False
    is_held: bool = False
    delay_ms: int = 0
    waiting: deque[Callable[[], object]] = field(default_factory=deque[Callable[[], object]])
    keeps: int = 0  # the number of single messages still to be held
    kept_kind: int | None = None  # the type of messages to hold
    kept: deque[Callable[[], object]] = field(default_factory=deque[Callable[[], object]])


class LinkGate:
    """The faults of one broker's links, by peer and direction."""

    def __init__(self, scheduler: DelayScheduler | None = None) -> None:
        self.is_active = False
        self.dropped_count = self.held_count = self.delayed_count = 0
        self._scheduler = scheduler
        self._directions: dict[tuple[int, bool], _Direction] = {}

    def attach(self, scheduler: DelayScheduler) -> None:
        """Set the event loop on which delayed messages are delivered."""
        self._scheduler = scheduler

    def cut(self, peer: int, *, inbound: bool = True, outbound: bool = True) -> None:
        """Lose all messages from (inbound) and to (outbound) this peer until `heal`."""
        for direction in self._chosen(peer, inbound, outbound):
            direction.is_cut = True

    def hold(self, peer: int, *, inbound: bool = True, outbound: bool = True) -> None:
        """Hold back all messages from (inbound) and to (outbound) this peer until `heal`."""
        for direction in self._chosen(peer, inbound, outbound):
            direction.is_held = True

    def delay(
        self, peer: int, delay_ms: int, *, inbound: bool = False, outbound: bool = True
    ) -> None:
        for direction in self._chosen(peer, inbound, outbound):
            direction.delay_ms = delay_ms

    def keep(
        self,
        peer: int,
        count: int = 1,
        *,
        kind: int | None = None,
        inbound: bool = False,
        outbound: bool = True,
    ) -> None:
        """Hold the next `count` messages until `heal`, while later messages overtake them.

        kind: a PeerMessage. Only outbound requests and one-way messages of this type are then held,
        because most messages are heartbeats.
        """
        for direction in self._chosen(peer, inbound, outbound):
            direction.keeps, direction.kept_kind = min(count, HELD_MAX), kind

    def faults(self) -> list[dict[str, int | bool]]:
        """Return the current faults, with a row for each peer and direction."""
        return [
            {
                "peer": peer,
                "is_outbound": is_outbound,
                "is_cut": direction.is_cut,
                "is_held": direction.is_held or direction.keeps > 0 or bool(direction.kept),
                "delay_ms": direction.delay_ms,
            }
            for (peer, is_outbound), direction in self._directions.items()
        ]

    def heal(self, peer: int | None = None) -> None:
        """End the faults of the links with `peer`, or of all links.

        Held and delayed messages are delivered now, in order. Single messages held by `keep` are
        the last.
        """
        for key in [key for key in self._directions if peer in (None, key[0])]:
            direction = self._directions[key]
            direction.is_cut = direction.is_held = False
            direction.delay_ms = direction.keeps = 0
            # A delivery may send a message, which must not overtake the held ones.
            while direction.waiting:
                direction.waiting.popleft()()
            while direction.kept:
                direction.kept.popleft()()
            del self._directions[key]
        self.is_active = bool(self._directions)

    def admit(
        self, peer: int, is_outbound: bool, deliver: Callable[[], object], kind: int | None = None
    ) -> None:
        """Call `deliver` for a message now, later, or never, as the injected faults require.

        Call this method only while `is_active`.
        """
        direction = self._directions.get((peer, is_outbound))
        if direction is None:
            deliver()
        elif direction.is_cut or len(direction.waiting) >= HELD_MAX:
            self.dropped_count += 1
        elif direction.keeps and direction.kept_kind in (None, kind):
            direction.keeps -= 1
            direction.kept.append(deliver)
            self.held_count += 1
        elif direction.is_held or direction.delay_ms or direction.waiting:
            direction.waiting.append(deliver)
            if direction.is_held:
                self.held_count += 1
            else:
                self.delayed_count += 1
                assert self._scheduler is not None, "a delay needs an event loop"
                self._scheduler.call_later(
                    direction.delay_ms / 1000, lambda: self._release_one(direction)
                )
        else:
            deliver()

    def _release_one(self, direction: _Direction) -> None:
        if direction.waiting and not direction.is_held:
            direction.waiting.popleft()()

    def _chosen(self, peer: int, inbound: bool, outbound: bool) -> list[_Direction]:
        chosen: list[_Direction] = []
        for is_outbound, wanted in ((False, inbound), (True, outbound)):
            if wanted:
                chosen.append(self._directions.setdefault((peer, is_outbound), _Direction()))
        self.is_active = bool(self._directions)
        return chosen
