"""The client settings for logins to a test's broker, oncelog's or Kafka's."""

from typing import Any

from .certificates import KEY_PASSWORD, Certificates
from .token_provider import CLIENT_SECRET, TokenProvider

USERS = {name: f"{name}-geheim" for name in ("alice", "bob", "carol", "mallory")}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
MODULE = "org.apache.kafka.common.security"


class Logins:
    """A broker with a listener for each security.protocol."""

    files: Certificates
    provider: TokenProvider
    ports: dict[str, int]

    def address(self, protocol: str) -> str:
        """Return the bootstrap line of a listener."""
        return f"127.0.0.1:{self.ports[protocol]}"

    def login(self, protocol: str, mechanism: str, user: str = "alice") -> dict[str, Any]:
        """Return the client settings for this user, protocol and mechanism."""
        values = {"bootstrap.servers": self.address(protocol), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            values["ssl.ca.location"] = str(self.files.ca)
        if protocol == "SSL":
            return {**values, "ssl.keystore.location": str(self.files.alice),
                    "ssl.key.password": KEY_PASSWORD}  # fmt: skip
        values["sasl.mechanism"] = mechanism
        if mechanism != "OAUTHBEARER":
            return {**values, "sasl.username": user, "sasl.password": USERS[user]}
        return {
            **values,
            "sasl.oauthbearer.token.endpoint.url": self.provider.url("token"),
            "sasl.oauthbearer.client.credentials.client.id": user,
            "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
        }
