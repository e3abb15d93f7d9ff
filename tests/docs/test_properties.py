"""Test that a broker accepts the server.properties that the pages show."""

from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.config.keys import parse_properties
from oncelog.node.listener.sasl.mechanisms import plain_users

from .blocks import block

LEAST = {
    "node.id": "1",
    "oncelog.voters": "1",
    "log.dirs": "/tmp",
    "oncelog.peer.directory": "/tmp/peers",
}
PLAIN = {"listeners": "PLAINTEXT://127.0.0.1:9092"}


def test_security_page_listeners_are_accepted_by_the_broker_config() -> None:
    shown = parse_properties(block("docs/security.md", "listeners=CLIENTS").text)
    clients, inside = BrokerConfig.from_properties(LEAST | shown).endpoints
    assert clients.advertised == ("broker-1.example.org", 9092)
    assert (clients.overrides, inside.overrides) == ({"max_connections": 500}, {})


def test_security_page_authorizer_is_accepted_by_the_broker_config() -> None:
    text = block("docs/security.md", "authorizer.class.name=").text
    shown = BrokerConfig.from_properties({**LEAST, **PLAIN, **parse_properties(text)})
    assert shown.authorizer_class_name == STANDARD_AUTHORIZER
    assert shown.super_users == "User:admin"


def test_security_page_tls_settings_are_accepted_by_the_broker_config() -> None:
    shown = parse_properties(block("docs/security.md", "ssl.client.auth=required").text)
    config = BrokerConfig.from_properties(LEAST | shown)
    assert [each.protocol.name for each in config.endpoints] == ["SSL"]
    assert config.ssl_client_auth == "required"


def test_security_page_logins_are_accepted_by_the_broker_config() -> None:
    shown = parse_properties(block("docs/security.md", "connections.max.reauth.ms=").text)
    config = BrokerConfig.from_properties(LEAST | shown)
    (listener,) = config.endpoints
    users = plain_users(config.of_listener(listener).plain_sasl_jaas_config)
    assert users["admin"].reveal() == "PASSWORD"
    assert "PASSWORD" not in repr(config)
