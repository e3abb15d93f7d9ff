"""Converts a client's login to the settings of clients that are built on librdkafka.

The file does no I/O. Benchmarks run confluent-kafka, and read the same `client.properties` as other
commands.
"""

from typing import Any

from .config import SecurityConfig, TlsConfig


def librdkafka_config(security: SecurityConfig | None) -> dict[str, str]:
    """Return the configuration of a confluent-kafka client, with secrets as text.

    Raises ValueError for tokens of a function, which librdkafka requests in another way.
    """
    if security is None:
        return {}
    found: dict[str, Any] = {"security.protocol": security.protocol}
    if security.tls is not None:
        found |= _tls(security.tls)
    sasl = security.sasl
    if sasl is not None:
        found["sasl.mechanism"] = sasl.mechanism
        if sasl.tokens is None:
            found |= {"sasl.username": sasl.username, "sasl.password": sasl.password.reveal()}
        elif sasl.tokens.provider is not None:
            raise ValueError(
                "sasl.oauthbearer.token.provider is a function, which confluent-kafka does not "
                "take: give sasl.oauthbearer.token.endpoint.url"
            )
        else:
            tokens = sasl.tokens
            found |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": tokens.url,
                "sasl.oauthbearer.client.id": tokens.client_id,
                "sasl.oauthbearer.client.secret": tokens.client_secret.reveal(),
                "sasl.oauthbearer.scope": tokens.scope,
                "sasl.oauthbearer.extensions": ",".join("=".join(p) for p in sasl.extensions),
                "https.ca.location": tokens.ca_file,
            }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _tls(tls: TlsConfig) -> dict[str, Any]:
    return {
        "ssl.ca.location": tls.ca_file,
        "ssl.ca.pem": tls.ca_pem,
        "ssl.certificate.location": tls.certificate_file,
        "ssl.certificate.pem": tls.certificate_pem,
        "ssl.key.location": tls.key_file,
        "ssl.key.pem": None if tls.key_pem is None else tls.key_pem.reveal(),
        "ssl.key.password": None if tls.key_password is None else tls.key_password.reveal(),
        "ssl.endpoint.identification.algorithm": None if tls.checks_host else "none",
        "enable.ssl.certificate.verification": "true" if tls.verifies else "false",
    }
