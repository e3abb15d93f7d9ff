"""Test that late requests are recognized by their connection, producer id and epoch."""

import pytest

from oncelog.coordinator.transactions.connection_fence import ConnectionFence, StaleConnection

ELECTION = 10
OLD, NEW = (5, 0), (5, 1)  # identities


def test_end_txn_on_a_connection_older_than_the_coordinator_election_is_refused():
    fence = ConnectionFence(ELECTION)
    for connection in (1, ELECTION):
        with pytest.raises(StaleConnection, match="older than the coordinator's election"):
            fence.check("a", OLD, connection)
    fence.check("a", OLD, ELECTION + 1)


def test_producer_requests_on_an_older_of_two_connections_are_refused():
    fence = ConnectionFence(ELECTION)
    fence.check("a", OLD, 12)
    with pytest.raises(StaleConnection, match="a newer connection"):
        fence.check("a", OLD, 11)
    fence.check("a", OLD, 12)
    fence.check("b", OLD, 11)


def test_producer_initialized_after_the_coordinator_election_is_accepted():
    """InitProducerId is accepted on any connection. Later requests must not be on an older one."""
    fence = ConnectionFence(ELECTION)
    fence.note("a", NEW, 7)
    fence.check("a", NEW, 7)
    with pytest.raises(StaleConnection, match="a newer connection"):
        fence.check("a", NEW, 6)
    with pytest.raises(StaleConnection, match="election"):
        fence.check("a", OLD, 8)
    fence.check("a", NEW, 8)
    fence.remove("a")
    with pytest.raises(StaleConnection, match="election"):
        fence.check("a", NEW, 8)
