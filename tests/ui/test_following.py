"""Test the choice of the events that `oncelog events -f` prints as new."""

from oncelog.cli.look.events import after
from oncelog.ui.facts import ClusterEvent


def event(at_ms: int) -> ClusterEvent:
    return ClusterEvent(at_ms, "isr", "node 1", "node 1 left the ISR of orders/0")


def test_ui_events_after_a_known_event_are_the_later_events_even_if_equal() -> None:
    known = tuple(event(5) for _ in range(3))
    assert after(known, None) == known
    assert after(known, known[0]) == known[1:]
    assert after(known, known[2]) == ()


def test_ui_events_after_a_dropped_event_are_all_known_events() -> None:
    known = (event(5), event(6))
    assert after(known, event(5)) == known
