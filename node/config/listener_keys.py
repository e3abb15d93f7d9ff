"""The keys that can be set per listener, as `listener.name.NAME.KEY` (KIP-103)."""

from dataclasses import dataclass, fields

from ...wire.security.principal_rules import parse_principal_rules
from ...wire.security.secret import Secret
from .keys import INT, LIST, LONG, PASSWORD, STRING, at_least, one_of, setting, some_of

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def check_principal_rules(text: str) -> str | None:
    """Return the error in a list of principal mapping rules, or None."""
    try:
        parse_principal_rules(text)
    except ValueError as problem:
        return str(problem)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """The typed values of these keys, for listeners that do not override them."""

    max_connections: int = setting(
        "max.connections",
        INT,
        "2000",
        "Connections at a time; one more takes the place of one without a request, or is closed. "
        "A listener may have a smaller limit of its own.",
        at_least(1),
        kafka_default="2147483647",
        is_dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT,
        "2147483647",
        "Connections a second that may begin; further ones wait. A listener may have a smaller "
        "limit of its own.",
        at_least(1),
    )

    # TLS keys; private keys and certificates are PEM, in a file or in the value itself
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        STRING,
        "PEM",
        "The form of the keystore: PEM.",
        one_of("PEM"),
        kafka_default="JKS",
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        STRING,
        "",
        "A PEM file with the broker's private key and its certificates. It is taken up when it "
        "changes.",
    )
    ssl_keystore_key: Secret = setting(  # noqa: RUF009
        "ssl.keystore.key", PASSWORD, "", "The private key as PEM, instead of a file."
    )
    ssl_keystore_certificate_chain: Secret = setting(  # noqa: RUF009
        "ssl.keystore.certificate.chain", PASSWORD, "", "The certificates of ssl.keystore.key."
    )
    ssl_key_password: Secret = setting(  # noqa: RUF009
        "ssl.key.password", PASSWORD, "", "The password of the private key, if it is encrypted."
    )
    ssl_truststore_type: str = setting(
        "ssl.truststore.type",
        STRING,
        "PEM",
        "The form of the truststore: PEM.",
        one_of("PEM"),
        kafka_default="JKS",
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        STRING,
        "",
        "A PEM file with the CAs of clients' certificates. It is taken up when it changes.",
    )
    ssl_truststore_certificates: Secret = setting(  # noqa: RUF009
        "ssl.truststore.certificates", PASSWORD, "", "These CAs as PEM, instead of a file."
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must show a certificate; on a SASL_SSL listener only its own key counts.",
        one_of("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that are spoken.",
        some_of("TLSv1.2", "TLSv1.3"),
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal (KIP-371).",
        check_principal_rules,
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        LIST,
        "",
        "How clients log in on listeners with SASL: " + ", ".join(MECHANISMS) + ".",
        lambda value: some_of(*MECHANISMS)(value) if value else None,
        kafka_default="GSSAPI",
    )
    plain_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "plain.sasl.jaas.config",
        PASSWORD,
        "",
        'The users of PLAIN, one user_NAME="PASSWORD" each: ...PlainLoginModule required '
        'user_alice="PASSWORD"; as in Kafka.',
    )
    scram_256_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "scram-sha-256.sasl.jaas.config",
        PASSWORD,
        "",
        "Taken as Kafka asks for it; SCRAM's users are those of AlterUserScramCredentials.",
    )
    scram_512_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "scram-sha-512.sasl.jaas.config", PASSWORD, "", "As scram-sha-256.sasl.jaas.config."
    )
    oauthbearer_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "oauthbearer.sasl.jaas.config", PASSWORD, "", "As scram-sha-256.sasl.jaas.config."
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        "",
        "The keys that sign tokens, as a JWKS: file:///... or https://...",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        "3600000",
        "How often keys at a web address are read again; a file is read when it changes.",
        at_least(1000),
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience", LIST, "", "A token must be meant for one of these."
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer", STRING, "", "Who must have issued a token; empty: any."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        "30",
        "By how much the clocks of issuer and broker may differ.",
        at_least(0),
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that names the principal."
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "How long a login lasts until the client must log in again (KIP-368); 0: no limit.",
        at_least(0),
    )
    plain_connections_max_reauth_ms: int = setting(
        "plain.connections.max.reauth.ms",
        LONG,
        "-1",
        "connections.max.reauth.ms of logins by PLAIN; -1: as of others.",
        at_least(-1),
    )
    scram_256_connections_max_reauth_ms: int = setting(
        "scram-sha-256.connections.max.reauth.ms",
        LONG,
        "-1",
        "The same of SCRAM-SHA-256.",
        at_least(-1),
    )
    scram_512_connections_max_reauth_ms: int = setting(
        "scram-sha-512.connections.max.reauth.ms",
        LONG,
        "-1",
        "The same of SCRAM-SHA-512.",
        at_least(-1),
    )
    oauthbearer_connections_max_reauth_ms: int = setting(
        "oauthbearer.connections.max.reauth.ms",
        LONG,
        "-1",
        "The same of OAUTHBEARER.",
        at_least(-1),
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        INT,
        "524288",
        "The largest request before a login.",
        at_least(1024),
    )

    @property
    def sessions_ms(self) -> dict[str, int]:
        """Return the session lifetime of each mechanism that has its own value."""
        values = (
            ("PLAIN", self.plain_connections_max_reauth_ms),
            ("SCRAM-SHA-256", self.scram_256_connections_max_reauth_ms),
            ("SCRAM-SHA-512", self.scram_512_connections_max_reauth_ms),
            ("OAUTHBEARER", self.oauthbearer_connections_max_reauth_ms),
        )
        return {mechanism: value for mechanism, value in values if value >= 0}


LISTENER_ATTRIBUTES = {each.metadata["key"].name: each.name for each in fields(ListenerSettings)}
