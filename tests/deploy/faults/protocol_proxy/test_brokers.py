"""Test the proxy's port for each broker, and the broker to which a connection leads."""

import pytest

from oncelog.deploy.faults.protocol_proxy import brokers as module
from oncelog.deploy.faults.protocol_proxy.brokers import BOOTSTRAP, Brokers, Ports


def ports_of(brokers: Brokers) -> tuple[Ports, list[tuple[str, int | None]]]:
    listening: list[tuple[str, int | None]] = []

    def listen(instance: str, broker_id: int | None) -> int:
        listening.append((instance, broker_id))
        return 1000 + len(listening)

    return Ports(brokers, listen), listening


def test_proxy_has_one_port_for_each_instance_and_broker():
    ports, listening = ports_of(Brokers([("b", 1)]))
    assert ports.port_of("one", BOOTSTRAP) == ports.port_of("one", BOOTSTRAP) == 1001
    assert ports.proxied("one", 3, "b3", 9) == ("127.0.0.1", 1002)
    assert ports.proxied("two", 3, "b3", 9) == ("127.0.0.1", 1003)
    assert listening == [("one", None), ("one", 3), ("two", 3)]


def test_proxy_port_of_a_broker_stays_when_the_broker_moves():
    brokers = Brokers([("b", 1)])
    ports, _ = ports_of(brokers)
    before = ports.proxied("one", 3, "b3", 9)
    assert ports.proxied("one", 3, "elsewhere", 10) == before
    assert brokers.targets(3) == [("elsewhere", 10)]
    assert brokers.id_of(("elsewhere", 10)) == 3
    assert brokers.id_of(("b3", 9)) is None


def test_proxy_bootstrap_connections_start_at_a_different_broker_each_time():
    brokers = Brokers([("b", 1)])
    brokers.addresses.update({1: ("b", 1), 2: ("c", 2)})
    found = [brokers.targets(BOOTSTRAP) for _ in range(2)]
    assert sorted(found) == [[("b", 1), ("c", 2)], [("c", 2), ("b", 1)]]


def test_proxy_refuses_more_listeners_than_its_maximum(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LISTENERS_MAX", 2)
    ports, _ = ports_of(Brokers([("b", 1)]))
    for number in range(2):
        ports.port_of("one", number)
    with pytest.raises(OverflowError, match="at most 2 listeners"):
        ports.port_of("one", 2)
