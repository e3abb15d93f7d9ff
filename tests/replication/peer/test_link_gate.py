"""Test that LinkGate cuts, delays and holds messages, without a link between brokers."""

from oncelog.replication.peer.link_gate import HELD_MAX, LinkGate


class Timers:
    """A replacement of an event loop, in which `advance` runs the calls that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, int, object]] = []

    def call_later(self, delay, callback):
        self.calls.append((self.now + delay, len(self.calls), callback))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = sorted(call for call in self.calls if call[0] <= self.now)
        self.calls = [call for call in self.calls if call[0] > self.now]
        for _, _, callback in due:
            callback()  # type: ignore[operator]


def test_link_gate_is_inactive_before_a_fault_and_after_healing() -> None:
    gate = LinkGate()
    assert not gate.is_active
    gate.cut(2)
    assert gate.is_active
    gate.heal()
    assert not gate.is_active


def test_link_gate_cut_may_be_in_one_direction() -> None:
    gate, out = LinkGate(), []
    gate.cut(2, inbound=False)
    gate.admit(2, True, lambda: out.append("out"))
    gate.admit(2, False, lambda: out.append("in"))
    gate.admit(3, True, lambda: out.append("other"))
    assert out == ["in", "other"]
    assert gate.dropped_count == 1


def test_link_gate_releases_held_messages_in_order() -> None:
    gate, out = LinkGate(Timers()), []
    gate.hold(2)
    for i in range(3):
        gate.admit(2, True, lambda i=i: out.append(i))
    assert out == []
    gate.heal(2)
    assert out == [0, 1, 2]


def test_link_gate_message_sent_during_a_heal_follows_held_messages() -> None:
    gate, out = LinkGate(Timers()), []

    def first() -> None:
        out.append("first")
        gate.admit(2, True, lambda: out.append("third"))

    gate.hold(2)
    gate.admit(2, True, first)
    gate.admit(2, True, lambda: out.append("second"))
    gate.heal()
    assert out == ["first", "second", "third"]


def test_link_gate_delayed_messages_keep_their_order_when_the_delay_shrinks() -> None:
    timers = Timers()
    gate, out = LinkGate(timers), []
    gate.delay(2, 50)
    gate.admit(2, True, lambda: out.append("slow"))
    gate.delay(2, 10)
    gate.admit(2, True, lambda: out.append("quick"))
    timers.advance(0.02)
    assert out in ([], ["slow"])
    timers.advance(0.05)
    assert out == ["slow", "quick"]


def test_link_gate_number_of_held_messages_is_bounded() -> None:
    gate, out = LinkGate(), []
    gate.hold(2)
    for i in range(HELD_MAX + 5):
        gate.admit(2, True, lambda i=i: out.append(i))
    gate.heal()
    assert len(out) == HELD_MAX
    assert gate.dropped_count == 5


def test_link_gate_keep_holds_one_message_until_healing_and_passes_later_messages() -> None:
    gate, out = LinkGate(Timers()), []
    gate.keep(2)
    for i in range(3):
        gate.admit(2, True, lambda i=i: out.append(i))
    assert out == [1, 2]
    gate.heal()
    assert out == [1, 2, 0]
    assert gate.held_count == 1 and not gate.is_active


def test_link_gate_keep_with_a_kind_holds_no_message_of_another_kind() -> None:
    gate, out = LinkGate(Timers()), []
    gate.keep(2, kind=8)
    for i, kind in enumerate([1, 8, 8, None]):
        gate.admit(2, True, lambda i=i: out.append(i), kind)
    assert out == [0, 2, 3]
    gate.heal()
    assert out == [0, 2, 3, 1]


def test_link_gate_counts_held_and_delayed_messages() -> None:
    timers = Timers()
    gate, out = LinkGate(timers), []
    gate.delay(2, 50)
    gate.admit(2, True, lambda: out.append("late"))
    gate.hold(3)
    gate.admit(3, True, lambda: out.append("held"))
    assert (gate.dropped_count, gate.held_count, gate.delayed_count) == (0, 1, 1)
    timers.advance(0.05)
    gate.heal()
    assert out == ["late", "held"]
