"""Run an Apache Kafka with a listener for each security.protocol, all mechanisms and ACLs.

Every client of the plain listener is a super user, for administration. The certificates are created
here. The SSL listener requires a client certificate, and the TLS listener does not. The broker's
certificate on the LATE listener has expired. Tokens come from a small provider, and Kafka fetches
its keys over HTTP.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from oncelog.client.connection import BrokerConnection
from oncelog.wire.messages import control

from ...wire.field_names import check_names
from ..kafka_peer import KafkaPeer, free_ports
from .certificates import Certificates
from .logins import MECHANISMS, MODULE, USERS, Logins
from .token_provider import ISSUER, TokenProvider

# As in Kafka's own start script; the JVM options of tests compile little, and encrypt slowly.
SERVER_JVM = ("-Xmx1G", "-Xms1G", "-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=4")
SESSION_MS = 2_000  # of SCRAM-SHA-256 in plain text: KIP-368
CREATE_ACLS = 30
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5}
OPERATIONS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Describe": 8,
    "DescribeConfigs": 10,
    "TwoPhaseCommit": 15,
}
ALLOW, LITERAL, PREFIXED = 3, 3, 4
CLUSTER_NAME = "kafka-cluster"  # of the one resource of its kind


class SecuredKafka(Logins, KafkaPeer):
    """An Apache Kafka with security, as the top of the file describes."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
        flags: Sequence[str] = (),
    ) -> None:
        self.files = Certificates(folder / "certificates")
        self.provider = TokenProvider()
        names = ("SSL", "TLS", "LATE", "SASL_SSL", "SASL_PLAINTEXT")
        self.ports: dict[str, int] = dict(zip(names, free_ports(len(names)), strict=True))
        urls = f"{self.provider.url('jwks')},{self.provider.url('token')}"
        scram = [
            option
            for user, password in USERS.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for option in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]
        super().__init__(
            folder,
            flags=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}", *flags),
            format_options=scram,
            settings={**self._settings_of(), **settings},
        )

    def more_listeners(self) -> dict[str, int]:
        return self.ports

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.provider.close()

    def _settings_of(self) -> dict[str, str]:
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.late.ssl.keystore.location": str(self.files.late),
            "ssl.principal.mapping.rules": r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": self.provider.url("jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config":
                    f"{MODULE}.plain.PlainLoginModule required {users};",
                f"{prefix}.scram-sha-256.sasl.jaas.config":
                    f"{MODULE}.scram.ScramLoginModule required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config":
                    f"{MODULE}.scram.ScramLoginModule required;",
                f"{prefix}.oauthbearer.sasl.jaas.config":
                    f"{MODULE}.oauthbearer.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class":
                    f"{MODULE}.oauthbearer.OAuthBearerValidatorCallbackHandler",
            }  # fmt: skip
        return settings

    async def allow(
        self, user: str, kind: str, name: str, *operations: str, pattern: int = LITERAL
    ) -> None:
        """Grant a user operations on one resource, or on all with this prefix (PREFIXED)."""
        host, port = self.bootstrap.split(":")
        connection = await BrokerConnection.open(host, int(port))
        creations = [
            {
                "resource_type": RESOURCES[kind],
                "resource_name": name,
                "resource_pattern_type": pattern,
                "principal": f"User:{user}",
                "host": "*",
                "operation": OPERATIONS[operation],
                "permission_type": ALLOW,
            }
            for operation in operations
        ]
        request = {"creations": creations}
        check_names(CREATE_ACLS, "request", request)
        body = control.encode_request(CREATE_ACLS, 3, request)
        answer = control.decode_response(
            CREATE_ACLS, 3, await connection.send(CREATE_ACLS, 3, [body])
        )
        assert [r.error_code for r in answer.results] == [0] * len(creations), answer
        connection.close()
