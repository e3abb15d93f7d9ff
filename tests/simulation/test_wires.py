"""Test delayed requests in the simulated network."""

from oncelog.replication.messages import PeerMessage

from .virtual_loop import Timeline
from .wires import Wires

MARKERS, HEARTBEAT = PeerMessage.WRITE_TRANSACTION_MARKERS, PeerMessage.HEARTBEAT


def test_virtual_wires_keep_delays_the_given_number_of_requests_of_a_kind() -> None:
    wires = Wires(Timeline(1))
    now = wires._timeline.now
    kept_for: list[int] = []
    wires.keep(1, MARKERS, 2, now + 5, kept_for.append)
    assert wires.kept_until(1, 2, HEARTBEAT) is None
    assert wires.kept_until(2, 3, MARKERS) is None, "of another node"
    for target in (2, 3):
        until = wires.kept_until(1, target, MARKERS)
        assert until is not None and now <= until <= now + 5
    assert wires.kept_until(1, 2, MARKERS) is None
    assert kept_for == [2, 3]
    wires.keep(1, 0, 1, now + 5, kept_for.append)
    assert wires.kept_until(1, 2, HEARTBEAT) is not None, "0 is any kind"
    wires.keep(1, MARKERS, 1, now, kept_for.append)
    assert wires.kept_until(1, 2, MARKERS) is None, "its time is over"
