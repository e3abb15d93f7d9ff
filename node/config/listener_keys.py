"""The keys that can be set per listener, as `listener.name.NAME.KEY` (KIP-103)."""

from dataclasses import dataclass, fields

from ...wire.security.principal_rules import parse_principal_rules
from ...wire.security.secret import Secret
from .keys import BOOLEAN, INT, LIST, LONG, PASSWORD, STRING, at_least, one_of, setting, some_of

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
    """The values of the keys that can be set per listener, for listeners without own values."""

    max_connections: int = setting(
        "max.connections",
        INT,
        "2000",
        "The maximum number of connections. A new connection replaces one that has sent no "
        "request, or else is closed. A listener may have its own smaller limit.",
        at_least(1),
        kafka_default="2147483647",
        is_dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        INT,
        "2147483647",
        "The maximum number of new connections per second. Further connections wait. A listener "
        "may have its own smaller limit.",
        at_least(1),
    )

    # TLS keys; private keys and certificates are PEM, in a file or in the value itself
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        STRING,
        "PEM",
        "The format of the keystore. Only PEM is supported.",
        one_of("PEM"),
        kafka_default="JKS",
    )
    ssl_keystore_location: str = setting(
        "ssl.keystore.location",
        STRING,
        "",
        "A PEM file with the broker's private key and certificates. It is reloaded when it "
        "changes.",
    )
    ssl_keystore_key: Secret = setting(  # noqa: RUF009
        "ssl.keystore.key",
        PASSWORD,
        "",
        "The private key as PEM, instead of ssl.keystore.location.",
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
        "The format of the truststore. Only PEM is supported.",
        one_of("PEM"),
        kafka_default="JKS",
    )
    ssl_truststore_location: str = setting(
        "ssl.truststore.location",
        STRING,
        "",
        "A PEM file with the CAs of clients' certificates. It is reloaded when it changes.",
    )
    ssl_truststore_certificates: Secret = setting(  # noqa: RUF009
        "ssl.truststore.certificates",
        PASSWORD,
        "",
        "The CAs as PEM, instead of ssl.truststore.location.",
    )
    ssl_client_auth: str = setting(
        "ssl.client.auth",
        STRING,
        "none",
        "Whether clients must present a certificate. For a SASL_SSL listener, only the key of "
        "this listener has an effect.",
        one_of("none", "requested", "required"),
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        LIST,
        "TLSv1.2,TLSv1.3",
        "The supported versions of TLS.",
        some_of("TLSv1.2", "TLSv1.3"),
    )
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "The rules that map the subject of a client's certificate to a principal name (KIP-371).",
        check_principal_rules,
    )

    # SASL
    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        "sasl.enabled.mechanisms",
        LIST,
        "",
        "The SASL mechanisms of the listeners with SASL, from " + ", ".join(MECHANISMS) + ".",
        lambda value: some_of(*MECHANISMS)(value) if value else None,
        kafka_default="GSSAPI",
        shown_unset="empty",
    )
    plain_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "plain.sasl.jaas.config",
        PASSWORD,
        "",
        'The users of PLAIN, each as user_NAME="PASSWORD". Like in Kafka, ...PlainLoginModule '
        'required user_alice="PASSWORD"; is a value with one user.',
        shown_unset="hidden",
    )
    scram_256_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "scram-sha-256.sasl.jaas.config",
        PASSWORD,
        "",
        "Accepted for compatibility. The users of SCRAM are created with "
        "AlterUserScramCredentials.",
        shown_unset="hidden",
    )
    scram_512_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "scram-sha-512.sasl.jaas.config",
        PASSWORD,
        "",
        "Accepted for compatibility.",
        shown_unset="hidden",
    )
    oauthbearer_sasl_jaas_config: Secret = setting(  # noqa: RUF009
        "oauthbearer.sasl.jaas.config",
        PASSWORD,
        "",
        "Accepted for compatibility.",
        shown_unset="hidden",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        STRING,
        "",
        "The URL of the JWKS with the public keys of the token issuer, file:///... or https://...",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        LONG,
        "3600000",
        "How often a JWKS is fetched again over https. A file is reloaded when it changes.",
        at_least(1000),
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        "sasl.oauthbearer.expected.audience",
        LIST,
        "",
        "The accepted audiences. A token must have one of them. Required for OAUTHBEARER, except "
        "with sasl.oauthbearer.allow.unverified.audience.",
        shown_unset="empty",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "sasl.oauthbearer.expected.issuer",
        STRING,
        "",
        "The issuer that tokens must have. Required for OAUTHBEARER, except with "
        "sasl.oauthbearer.allow.unverified.issuer.",
    )
    sasl_oauthbearer_allow_unverified_audience: bool = setting(
        "sasl.oauthbearer.allow.unverified.audience",
        BOOLEAN,
        "false",
        "Whether tokens of any audience, or of none, are accepted while "
        "sasl.oauthbearer.expected.audience is empty. This is insecure.",
    )
    sasl_oauthbearer_allow_unverified_issuer: bool = setting(
        "sasl.oauthbearer.allow.unverified.issuer",
        BOOLEAN,
        "false",
        "Whether tokens of any issuer, or of none, are accepted while "
        "sasl.oauthbearer.expected.issuer is empty. This is insecure.",
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds",
        INT,
        "30",
        "The maximum difference between the clocks of the issuer and the broker.",
        at_least(0),
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim that has the principal name."
    )
    connections_max_reauth_ms: int = setting(
        "connections.max.reauth.ms",
        LONG,
        "0",
        "The time until a client must authenticate again (KIP-368). 0 means no limit.",
        at_least(0),
    )
    plain_connections_max_reauth_ms: int = setting(
        "plain.connections.max.reauth.ms",
        LONG,
        "-1",
        "connections.max.reauth.ms for PLAIN. -1 means the value of connections.max.reauth.ms.",
        at_least(-1),
        shown_unset="hidden",
    )
    scram_256_connections_max_reauth_ms: int = setting(
        "scram-sha-256.connections.max.reauth.ms",
        LONG,
        "-1",
        "connections.max.reauth.ms for SCRAM-SHA-256. -1 means the value of "
        "connections.max.reauth.ms.",
        at_least(-1),
        shown_unset="hidden",
    )
    scram_512_connections_max_reauth_ms: int = setting(
        "scram-sha-512.connections.max.reauth.ms",
        LONG,
        "-1",
        "connections.max.reauth.ms for SCRAM-SHA-512. -1 means the value of "
        "connections.max.reauth.ms.",
        at_least(-1),
        shown_unset="hidden",
    )
    oauthbearer_connections_max_reauth_ms: int = setting(
        "oauthbearer.connections.max.reauth.ms",
        LONG,
        "-1",
        "connections.max.reauth.ms for OAUTHBEARER. -1 means the value of "
        "connections.max.reauth.ms.",
        at_least(-1),
        shown_unset="hidden",
    )
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size",
        INT,
        "524288",
        "The maximum size of a request before authentication.",
        at_least(1024),
    )

    @property
    def sessions_ms(self) -> dict[str, int]:
        """Return `connections.max.reauth.ms` of each SASL mechanism that has its own value."""
        values = (
            ("PLAIN", self.plain_connections_max_reauth_ms),
            ("SCRAM-SHA-256", self.scram_256_connections_max_reauth_ms),
            ("SCRAM-SHA-512", self.scram_512_connections_max_reauth_ms),
            ("OAUTHBEARER", self.oauthbearer_connections_max_reauth_ms),
        )
        return {mechanism: value for mechanism, value in values if value >= 0}


LISTENER_ATTRIBUTES = {each.metadata["key"].name: each.name for each in fields(ListenerSettings)}
