"""Kafka's keys that are described, but accepted only with their defaults.

A server.properties written for Kafka may contain these keys. A value other than the default is
refused, and the error gives the reason.
"""

from ...storage.topic_configs import ConfigType
from .keys import BOOLEAN, INT, LIST, LONG, PASSWORD, SHORT, STRING, BrokerKey

_DOUBLE = ConfigType.DOUBLE
_NO_PLUGINS = "plug-ins are classes of Java"
_NO_POLICIES = "policies and providers of configurations are classes of Java"
_ONE_DIRECTORY = "a broker has one data directory, that of log.dirs"
_NO_KERBEROS = "there is no Kerberos"
_NO_DELEGATION = "there are no delegation tokens"
_OWN_LINKS = "brokers connect to each other by links of their own, and never as clients"
_PEM = "keys and certificates are PEM: ssl.keystore.* and ssl.truststore.*"
_OPENSSL = "TLS is that of OpenSSL, with its own choice"
_BY_MECHANISM = "the users are given for a mechanism: plain.sasl.jaas.config"
_TRIED_LATER = "a JWKS that cannot be fetched is fetched again after a fixed time"
_NO_SCOPES = "the scopes of a token are not read"
_VERIFIED = "a transaction is verified before anything of it is appended"
_RETRIEVER = "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"
_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"

# The fifth value is True for a dynamic key.
_ROWS: tuple[tuple[str, ConfigType, str, str, bool], ...] = (
    ("alter.config.policy.class.name", STRING, "", _NO_POLICIES, False),
    ("client.quota.callback.class", STRING, "", _NO_PLUGINS, False),
    ("config.providers", LIST, "", _NO_POLICIES, True),
    ("cordoned.log.dirs", LIST, "", _ONE_DIRECTORY, True),
    ("create.topic.policy.class.name", STRING, "", _NO_POLICIES, False),
    ("delegation.token.secret.key", PASSWORD, "", _NO_DELEGATION, False),
    ("early.start.listeners", LIST, "", _OWN_LINKS, False),
    ("kafka.metrics.reporters", LIST, "", _NO_PLUGINS, False),
    ("log.dir", LIST, "/tmp/kafka-logs", _ONE_DIRECTORY, False),
    ("metric.reporters", LIST, _REPORTER, _NO_PLUGINS, True),
    ("offsets.topic.compression.codec", INT, "0", "offsets are not compressed", False),
    ("principal.builder.class", STRING, _PRINCIPALS, _NO_PLUGINS, True),
    ("remote.log.storage.system.enable", BOOLEAN, "false", "there is no tiered storage", False),
    ("replica.selector.class", STRING, "", "followers serve no consumers", False),
    ("sasl.client.callback.handler.class", STRING, "", _NO_PLUGINS, False),
    ("sasl.jaas.config", PASSWORD, "", _BY_MECHANISM, True),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", _NO_KERBEROS, True),
    ("sasl.kerberos.min.time.before.relogin", LONG, "60000", _NO_KERBEROS, True),
    ("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", _NO_KERBEROS, True),
    ("sasl.kerberos.service.name", STRING, "", _NO_KERBEROS, True),
    ("sasl.kerberos.ticket.renew.jitter", _DOUBLE, "0.05", _NO_KERBEROS, True),
    ("sasl.kerberos.ticket.renew.window.factor", _DOUBLE, "0.8", _NO_KERBEROS, True),
    ("sasl.login.callback.handler.class", STRING, "", _NO_PLUGINS, False),
    ("sasl.login.class", STRING, "", _NO_PLUGINS, False),
    ("sasl.login.connect.timeout.ms", INT, "", _OWN_LINKS, False),
    ("sasl.login.read.timeout.ms", INT, "", _OWN_LINKS, False),
    ("sasl.login.refresh.buffer.seconds", SHORT, "300", _OWN_LINKS, True),
    ("sasl.login.refresh.min.period.seconds", SHORT, "60", _OWN_LINKS, True),
    ("sasl.login.refresh.window.factor", _DOUBLE, "0.8", _OWN_LINKS, True),
    ("sasl.login.refresh.window.jitter", _DOUBLE, "0.05", _OWN_LINKS, True),
    ("sasl.login.retry.backoff.max.ms", LONG, "10000", _OWN_LINKS, False),
    ("sasl.login.retry.backoff.ms", LONG, "100", _OWN_LINKS, False),
    ("sasl.mechanism.controller.protocol", STRING, "GSSAPI", _OWN_LINKS, False),
    ("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", _OWN_LINKS, True),
    ("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.aud", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", INT, "300", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.iss", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, "false", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, "60", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.claim.sub", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.file", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.private.key.file", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.assertion.template.file", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.client.credentials.client.id", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000", _TRIED_LATER, False),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100", _TRIED_LATER, False),
    ("sasl.oauthbearer.jwt.retriever.class", STRING, _RETRIEVER, _NO_PLUGINS, False),
    ("sasl.oauthbearer.jwt.validator.class", STRING, _VALIDATOR, _NO_PLUGINS, False),
    ("sasl.oauthbearer.scope", STRING, "", _OWN_LINKS, False),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", _NO_SCOPES, False),
    ("sasl.oauthbearer.token.endpoint.url", STRING, "", _OWN_LINKS, False),
    ("sasl.server.callback.handler.class", STRING, "", _NO_PLUGINS, False),
    ("security.inter.broker.protocol", STRING, "PLAINTEXT", _OWN_LINKS, False),
    ("security.providers", STRING, "", _NO_PLUGINS, False),
    ("ssl.allow.dn.changes", BOOLEAN, "false", _OPENSSL, False),
    ("ssl.allow.san.changes", BOOLEAN, "false", _OPENSSL, False),
    ("ssl.cipher.suites", LIST, "", _OPENSSL, True),
    ("ssl.endpoint.identification.algorithm", STRING, "https", _OWN_LINKS, True),
    ("ssl.engine.factory.class", STRING, "", _NO_PLUGINS, True),
    ("ssl.keymanager.algorithm", STRING, "SunX509", _OPENSSL, True),
    ("ssl.keystore.password", PASSWORD, "", _PEM, True),
    ("ssl.protocol", STRING, "TLSv1.3", _OPENSSL, True),
    ("ssl.provider", STRING, "", _OPENSSL, True),
    ("ssl.secure.random.implementation", STRING, "", _OPENSSL, True),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", _OPENSSL, True),
    ("ssl.truststore.password", PASSWORD, "", _PEM, True),
    ("transaction.partition.verification.enable", BOOLEAN, "true", _VERIFIED, True),
)
# Kafka describes these with an empty text, where others without a default are null.
_EMPTY_BY_DEFAULT = (
    "config.providers",
    "cordoned.log.dirs",
    "kafka.metrics.reporters",
    "ssl.cipher.suites",
)
KNOWN_KEYS = {
    name: BrokerKey(
        name=name,
        type=config_type,
        default=default,
        doc="Only the default is supported.",
        is_dynamic=is_dynamic,
        not_served=reason,
        shown_unset="empty" if name in _EMPTY_BY_DEFAULT else "null",
    )
    for name, config_type, default, reason, is_dynamic in _ROWS
}
