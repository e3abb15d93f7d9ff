"""The certificates of a listener, as PEM files or values, with a reload of changed files.

New connections get the new certificates. Open connections keep theirs. If a new file is invalid,
the listener keeps its certificates, and each change of the file is logged once.
"""

import logging
import os
import ssl
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....coordinator.security.principal import ANONYMOUS, USER, Principal
from ....runtime.rate_limited_log import LimitedLog
from ....wire.errors import InvalidConfig
from ....wire.security.principal_rules import mapped_name, parse_principal_rules
from ...config.broker_config import BrokerConfig
from ...config.listener_keys import ListenerSettings
from .distinguished_name import distinguished_name

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsCredentials:
    """The certificates of one listener.

    The constructor raises InvalidConfig if the certificates are invalid.
    """

    def __init__(self, listener: str, settings: ListenerSettings, log: logging.Logger) -> None:
        self._listener, self._settings, self._log = listener, settings, log
        self._limited_log = LimitedLog(log)
        self._rules = parse_principal_rules(settings.ssl_principal_mapping_rules)
        self._files = [
            Path(file)
            for file in (settings.ssl_keystore_location, settings.ssl_truststore_location)
            if file
        ]
        self._stamp = self._look()
        self.context = make_context(settings, f"listener {listener}")

    def refresh(self) -> None:
        """Reload changed files from the disk. This blocks, so it must be called in a thread."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context = make_context(self._settings, f"listener {self._listener}")
        except InvalidConfig as problem:
            self._log.error("new certificates cannot be loaded: %s", problem)
        else:
            self._log.info("listener %s uses its new certificates", self._listener)

    def principal_of(self, certificate: dict[str, Any] | None) -> Principal:
        """Return the principal of a client's certificate.

        Returns ANONYMOUS without a certificate, or if no mapping rule fits its name.
        """
        if certificate is None:
            return ANONYMOUS
        name = distinguished_name(certificate.get("subject", ()))
        mapped = mapped_name(self._rules, name)
        if mapped is None:
            self._limited_log.log(
                logging.WARNING,
                "unmapped certificates",
                time.monotonic(),
                "no rule of ssl.principal.mapping.rules fits %r: the client is anonymous",
                name,
            )
            return ANONYMOUS
        return Principal(USER, mapped)

    def _look(self) -> _Stamp:
        return tuple(map(_stamp, self._files))


def tls_credentials(config: BrokerConfig, log: logging.Logger) -> dict[str, TlsCredentials]:
    """Return the certificates of each listener with TLS by its name, or raise InvalidConfig.

    As in Kafka, ssl.client.auth applies to a listener with SASL only as a key of that listener.
    """
    found: dict[str, TlsCredentials] = {}
    for listener in config.endpoints:
        if listener.protocol.uses_tls:
            settings = config.of_listener(listener)
            if listener.protocol.uses_sasl and "ssl_client_auth" not in listener.overrides:
                settings = replace(settings, ssl_client_auth="none")
            found[listener.name] = TlsCredentials(listener.name, settings, log)
    return found


def make_context(settings: ListenerSettings, where: str) -> ssl.SSLContext:
    """Return the SSL context of a listener, or raise InvalidConfig with the reason."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = sorted(VERSIONS[version] for version in settings.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = CLIENT_AUTH[settings.ssl_client_auth]
    _load_certificate(context, settings, where)
    if context.verify_mode is not ssl.CERT_NONE:
        _load_authorities(context, settings, where)
    return context


def _load_certificate(context: ssl.SSLContext, settings: ListenerSettings, where: str) -> None:
    password = settings.ssl_key_password.reveal()
    key, chain = (
        settings.ssl_keystore_key.reveal(),
        settings.ssl_keystore_certificate_chain.reveal(),
    )
    try:
        if settings.ssl_keystore_location:
            # A function, since OpenSSL would prompt for a missing password.
            context.load_cert_chain(settings.ssl_keystore_location, password=lambda: password)
        elif key and chain:
            with tempfile.TemporaryDirectory() as folder:  # OpenSSL loads these only from files
                file = Path(folder) / "keystore.pem"
                descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with open(descriptor, "w", encoding="utf-8") as text:
                    text.write(f"{_lines(key)}\n{_lines(chain)}\n")
                context.load_cert_chain(file, password=lambda: password)
        else:
            raise InvalidConfig(
                f"{where} speaks TLS, so it needs ssl.keystore.location (a PEM file with a private "
                "key and its certificates), or ssl.keystore.key and ssl.keystore.certificate.chain."
            )
    except (OSError, ValueError) as problem:  # ssl.SSLError is a subclass of OSError
        raise InvalidConfig(
            f"{where}: the private key and certificates of ssl.keystore.* cannot be used: "
            f"{_reason(problem)}. They must be PEM; is ssl.key.password right?"
        ) from None


def _load_authorities(context: ssl.SSLContext, settings: ListenerSettings, where: str) -> None:
    given, file = settings.ssl_truststore_certificates.reveal(), settings.ssl_truststore_location
    try:
        if file:
            context.load_verify_locations(cafile=file)
        elif given:
            context.load_verify_locations(cadata=_lines(given))
        else:
            raise InvalidConfig(
                f"{where}: ssl.client.auth={settings.ssl_client_auth} needs "
                "ssl.truststore.location or ssl.truststore.certificates."
            )
    except (OSError, ValueError) as problem:
        raise InvalidConfig(
            f"{where}: the certificates of ssl.truststore.* cannot be used: {_reason(problem)}. "
            "They must be PEM."
        ) from None


def _lines(pem: str) -> str:
    r"""Return PEM text with real line ends, since a properties file may write them as \n."""
    return pem.replace("\\n", "\n").strip()


def _reason(problem: Exception) -> str:
    if isinstance(problem, ssl.SSLError):
        return problem.reason or str(problem)
    return problem.strerror or str(problem) if isinstance(problem, OSError) else str(problem)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
