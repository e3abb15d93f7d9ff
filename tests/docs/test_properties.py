"""The blocks of server.properties that the pages show are what a broker takes."""

from oncelog.node.config.broker_config import BrokerConfig
from oncelog.node.config.keys import parse_properties

from .blocks import block

LEAST = {
    "node.id": "1",
    "oncelog.voters": "1",
    "log.dirs": "/tmp",
    "oncelog.peer.directory": "/tmp/peers",
}


def test_listeners_of_the_page_are_taken_by_a_broker() -> None:
    shown = parse_properties(block("docs/security.md", "listeners=CLIENTS").text)
    clients, inside = BrokerConfig.from_properties(LEAST | shown).endpoints
    assert clients.advertised == ("broker-1.example.org", 9092)
    assert (clients.overrides, inside.overrides) == ({"max_connections": 500}, {})
