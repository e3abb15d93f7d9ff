"""Test the registration of brokers' endpoints, and the search for them by listener."""

import pytest

from oncelog.coordinator.metadata.cluster_snapshot import decode_tables, encode_tables
from oncelog.coordinator.metadata.commands import RegisterBroker, decode_command, encode_command
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode

from .metadata_cluster import MetadataCluster

ENDPOINTS = (("IN", "127.0.0.1", 1, 0), ("OUT", "example.org", 2, 3))


def registration(*endpoints: tuple[str, str, int, int]) -> RegisterBroker:
    return RegisterBroker(7, bytes(16), "boot", "127.0.0.1", 1, endpoints=endpoints)


def test_broker_endpoints_are_found_by_listener_from_log_and_snapshot() -> None:
    cluster = MetadataCluster(())
    command, _ = decode_command(encode_command(registration(*ENDPOINTS)))
    assert not cluster.do(command).error
    pieces = run_to_end(encode_tables(cluster.state, {}))
    tables, _ = run_to_end(decode_tables(b"".join(pieces)))
    for broker in (cluster.state.brokers[7], tables.brokers[7]):
        assert broker.endpoint("OUT") == ("example.org", 2)
        assert broker.endpoint("PLAINTEXT") is None
        assert broker.advertised == (("IN", "127.0.0.1", 1), ("OUT", "example.org", 2))


def test_broker_without_endpoints_has_the_plaintext_listener() -> None:
    cluster = MetadataCluster(())
    cluster.do(registration())
    broker = cluster.state.brokers[7]
    assert (broker.endpoint("PLAINTEXT"), broker.endpoint("OUT")) == (("127.0.0.1", 1), None)


@pytest.mark.parametrize("endpoints", [ENDPOINTS[:1] * 2, (("A", "h", 65536, 0),)])
def test_broker_endpoints_that_are_invalid_are_refused(
    endpoints: tuple[tuple[str, str, int, int], ...],
) -> None:
    cluster = MetadataCluster(())
    assert cluster.do(registration(*endpoints)).error == ErrorCode.INVALID_REGISTRATION
    assert not cluster.state.brokers
