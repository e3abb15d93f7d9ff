"""Test Kafka's rules for the names, protocols and ports of listeners, and prefixed keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.config.listeners import Endpoint, Listener, SecurityProtocol, parse_listeners
from oncelog.wire.errors import InvalidConfig

PLAINTEXT = SecurityProtocol.PLAINTEXT
MAP = "IN:PLAINTEXT,OUT:PLAINTEXT"
TWO = {
    "listeners": "IN://127.0.0.1:1,OUT://0.0.0.0:2",
    "advertised.listeners": "OUT://example.org:3,IN://localhost:1",
    "listener.security.protocol.map": MAP,
}


def config(**properties: str) -> BrokerConfig:
    least = {
        "node.id": "1",
        "oncelog.voters": "1",
        "log.dirs": "/tmp",
        "oncelog.peer.directory": "/tmp/peers",
    }
    return BrokerConfig.from_properties(least | properties)


def two(**more: str) -> BrokerConfig:
    return config(**TWO | more)


def test_listeners_are_matched_with_their_advertised_addresses_by_name() -> None:
    assert two().endpoints == (
        Listener("IN", PLAINTEXT, Endpoint("127.0.0.1", 1), Endpoint("localhost", 1)),
        Listener("OUT", PLAINTEXT, Endpoint("0.0.0.0", 2), Endpoint("example.org", 3)),
    )


def test_listener_names_are_case_insensitive() -> None:
    found = config(
        listeners="in://a:1",
        **{
            "listener.security.protocol.map": "In:plaintext",
            "listener.name.in.max.connections": "7",
        },
    )
    assert [each.name for each in found.endpoints] == ["IN"]
    assert found.of_listener(found.endpoints[0]).max_connections == 7


def test_listener_left_out_of_advertised_listeners_has_no_advertised_address() -> None:
    found = two(**{"advertised.listeners": "OUT://example.org:3"})
    assert [each.advertised for each in found.endpoints] == [None, ("example.org", 3)]
    assert found.first_advertised.name == "OUT"


def test_listener_prefixed_key_applies_only_to_that_listener() -> None:
    found = two(**{"max.connections": "9", "listener.name.out.max.connections": "3"})
    assert [found.of_listener(each).max_connections for each in found.endpoints] == [9, 3]


def test_reauthentication_limit_with_a_listener_prefix_applies_to_that_listener() -> None:
    key = "oauthbearer.connections.max.reauth.ms"
    found = two(**{key: "5", f"listener.name.out.{key}": "0"})
    of_each = [found.of_listener(each).sessions_ms for each in found.endpoints]
    assert of_each == [{"OAUTHBEARER": 5}, {"OAUTHBEARER": 0}]


def test_first_advertised_listener_is_the_inter_broker_listener_if_that_is_set() -> None:
    assert two().first_advertised.name == "IN"
    assert two(**{"inter.broker.listener.name": "OUT"}).first_advertised.name == "OUT"


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"listeners": ""}, "at least one"),
        ({"listeners": "OTHER://a:1"}, "No security protocol defined for listener OTHER"),
        ({"listeners": "IN://a:1,in://b:2"}, "a different name"),
        ({"listeners": "IN://a:1,OUT://b:1", "advertised.listeners": ""}, "a different port"),
        ({"listeners": "IN://[::1]:1,OUT://[::2]:1", "advertised.listeners": ""}, "different port"),
        ({"advertised.listeners": "PLAINTEXT://a:1"}, "No security protocol defined"),
        (
            {"listeners": "IN://a:1"},
            "equal to or a subset of the ones defined in listeners. Found OUT,IN.",
        ),
        ({"advertised.listeners": "IN://0.0.0.0:1"}, "Clients cannot connect to 0.0.0.0 of IN"),
        ({"advertised.listeners": ""}, "Clients cannot connect to 0.0.0.0 of OUT"),
        ({"listener.security.protocol.map": "IN:PLAIN"}, "entries such as NAME:SASL_SSL"),
        ({"listener.security.protocol.map": "IN"}, "entries such as NAME:SASL_SSL"),
        ({"listener.security.protocol.map": MAP + ",in:SSL"}, "names in twice"),
        (
            {"inter.broker.listener.name": "THIRD"},
            "based on currently configured listeners are IN,OUT",
        ),
        ({"listener.name.third.max.connections": "1"}, "listeners does not name: IN, OUT"),
        ({"listener.name.in.max.connections": "0"}, "listener.name.in.max.connections: Invalid"),
        ({"listener.name.in.log.dirs": "/x"}, "Unknown configuration listener.name.in.log.dirs"),
        ({"listener.name.in": "x"}, "Unknown configuration listener.name.in"),
    ],
)
def test_listeners_that_are_invalid_are_refused_with_a_reason(
    properties: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        two(**properties)
    assert says in str(caught.value)


def test_port_may_serve_one_listener_of_each_ip_family() -> None:
    found = parse_listeners(["A://127.0.0.1:1", "B://[::1]:1"], [], ["A:PLAINTEXT", "B:PLAINTEXT"])
    assert [each.bind for each in found] == [("127.0.0.1", 1), ("::1", 1)]


ENTRIES = st.lists(st.text(alphabet="AB:/[].019-, ", max_size=20), max_size=3)


@given(ENTRIES, ENTRIES, ENTRIES)
def test_listeners_of_any_text_are_parsed_or_refused(
    listeners: list[str], advertised: list[str], protocols: list[str]
) -> None:
    try:
        found = parse_listeners(listeners, advertised, protocols)
    except InvalidConfig:
        return
    assert found and all(0 <= each.bind.port <= 65535 for each in found)
