"""Test the limits of connections, which can be altered while the broker runs."""

import pytest

from oncelog.coordinator.metadata.commands import (
    BROKER_RESOURCE,
    DELETE,
    SET,
    AlterConfigs,
    ConfigOperation,
    ResourceConfigs,
)
from oncelog.node.listener.connection_limits import ConnectionLimits
from oncelog.wire.errors import InvalidConfig

from ..fake_broker import FakeBroker

FAR, LOOPBACK = "10.0.0.1", "127.0.0.1"
KEY, PER_ADDRESS = "max.connections", "max.connections.per.ip"


def alter(broker: FakeBroker, name: str, key: str, value: str | None) -> None:
    operation = ConfigOperation(key, DELETE if value is None else SET, value)
    result = broker.controller.apply(
        AlterConfigs((ResourceConfigs(BROKER_RESOURCE, name, (operation,)),))
    )
    assert [item.error for item in result.items] == [0]


def test_connection_limits_equal_the_limits_of_the_file_until_altered() -> None:
    broker = FakeBroker(max_connections="7", max_connections_per_ip="3")
    limits = ConnectionLimits(broker.state, broker.services.config)
    assert (limits.in_all, limits.of_address(FAR)) == (7, 3)
    alter(broker, "", KEY, "5")
    alter(broker, "", PER_ADDRESS, "2")
    assert (limits.in_all, limits.of_address(FAR)) == (5, 2)
    alter(broker, "1", KEY, "9")
    alter(broker, "2", PER_ADDRESS, "1")
    assert (limits.in_all, limits.of_address(FAR)) == (9, 2), "only its own config overrides"
    for name, key in (("1", KEY), ("", KEY), ("", PER_ADDRESS)):
        alter(broker, name, key, None)
    assert (limits.in_all, limits.of_address(FAR)) == (7, 3)


def test_connection_limits_altered_before_the_start_apply_immediately() -> None:
    broker = FakeBroker()
    alter(broker, "", KEY, "5")
    assert ConnectionLimits(broker.state, broker.services.config).in_all == 5


def test_connection_limits_may_be_set_for_single_addresses() -> None:
    broker = FakeBroker(
        max_connections_per_ip="3", max_connections_per_ip_overrides="10.0.0.1:7,::2:1"
    )
    limits = ConnectionLimits(broker.state, broker.services.config)
    hosts = (FAR, "::2", "10.0.0.2", LOOPBACK)
    assert [limits.of_address(host) for host in hosts] == [7, 1, 3, None]
    alter(broker, "", f"{PER_ADDRESS}.overrides", "127.0.0.1:2")
    assert [limits.of_address(host) for host in hosts] == [3, 3, 3, 2]


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1",
        "10.0.0.1:x",
        ":5",
        "::1:1,::2",
        "::1:-1",
        f"::1:{2**31}",
        "::1:" + 5_000 * "9",
        "localhost:5",
    ],
)
def test_connection_limit_overrides_that_are_malformed_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="ADDRESS:COUNT"):
        FakeBroker(max_connections_per_ip_overrides=text)


def test_connection_limit_override_applies_to_an_ipv4_mapped_address() -> None:
    broker = FakeBroker(max_connections_per_ip_overrides="::FFFF:10.0.0.1:7,[fe80::1%eth0]:2")
    limits = ConnectionLimits(broker.state, broker.services.config)
    assert [limits.of_address(host) for host in ("10.0.0.1", "fe80::1")] == [7, 2]


def test_connection_limit_overrides_longer_than_a_config_value_may_be_are_ignored() -> None:
    broker = FakeBroker(max_connections_per_ip="3")
    limits = ConnectionLimits(broker.state, broker.services.config)
    many = ",".join(f"10.0.{n // 250}.{n % 250}:1" for n in range(1_200))
    alter(broker, "", f"{PER_ADDRESS}.overrides", many)
    assert limits.of_address("10.0.0.1") == 3
    again = ConnectionLimits(broker.state, broker.services.config)  # after a restart
    assert again.of_address("10.0.0.1") == 3
