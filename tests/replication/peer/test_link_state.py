"""Test the states of a link between brokers after sequences of connection events."""

import pytest

from oncelog.replication.peer.link_state import GRACE_MS, LinkState


def play(*events: tuple[str, int]) -> list[bool]:
    """Apply (event, time) pairs to a link. Return `is_up` after each event that has changed it."""
    link, reported = LinkState(), []
    for name, now_ms in events:
        match name:
            case "connected":
                changed = link.connected()
            case "refused":
                changed = link.refused()
            case "closed":
                link.closed(now_ms)
                changed = False
            case _:
                changed = link.grace_over(now_ms)
        if changed:
            reported.append(link.is_up)
    return reported


UP, CLOSED, CHECK = ("connected", 0), ("closed", 5), ("check", 5 + GRACE_MS)


@pytest.mark.parametrize(
    ("events", "reported"),
    [
        ([("connected", 0)], [True]),
        ([("refused", 0), ("refused", 0)], []),  # never up: nothing to report
        ([("connected", 0), ("closed", 5), ("connected", 20), ("check", 5 + GRACE_MS)], [True]),
        ([("connected", 0), ("closed", 5), ("check", 5 + GRACE_MS)], [True, False]),
        ([("connected", 0), ("closed", 5), ("check", 4 + GRACE_MS)], [True]),
        ([("connected", 0), ("closed", 5), ("refused", 20)], [True]),
        ([("connected", 0), ("closed", 5), ("refused", 20), ("refused", 35)], [True, False]),
        ([UP, CLOSED, ("refused", 20), UP, ("closed", 40), ("refused", 50), CHECK], [True]),
        ([UP, CLOSED, ("refused", 9), ("refused", 12), CHECK, UP], [True, False, True]),
    ],
)
def test_peer_link_reset_changes_no_state_and_a_death_is_reported_once(events, reported) -> None:
    assert play(*events) == reported
