"""Creates TLS contexts from files and texts, and error messages from OpenSSL's errors.

Files are read when the first connection is opened. An unusable file is a ValueError, as with every
other setting. A failure of the peer is a typed error that says what to do.
"""

import os
import ssl
import tempfile
from pathlib import Path

from ...wire.errors import KafkaError
from ..failures import HungUp, SecurityProtocolMismatch, SslAuthenticationFailed
from .config import KEYSTORE_HELP, TRUSTSTORE_HELP, TlsConfig

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM_MARK = b"-----BEGIN "
JKS_MAGIC = b"\xfe\xed\xfe\xed"
WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
EXPIRED, NOT_YET = 10, 9
NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "BAD_LENGTH",
)
OF_OUR_CERTIFICATE = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "UNSUPPORTED_CERTIFICATE",
    "ALERT_ACCESS_DENIED",
)


def make_context(config: TlsConfig) -> ssl.SSLContext:
    """Return a client's TLS context, or raise ValueError that names an unusable file or text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    chosen = sorted(VERSIONS[version] for version in config.versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    context.check_hostname = config.checks_host
    context.verify_mode = ssl.CERT_REQUIRED if config.verifies else ssl.CERT_NONE
    if config.verifies:
        _load_authorities(context, config)
    if config.has_certificate:
        _load_certificate(context, config)
    return context


def https_context(ca_file: str | None) -> ssl.SSLContext:
    """Return the TLS context for the token endpoint, or raise ValueError as `make_context` does."""
    try:
        return make_context(TlsConfig(ca_file=ca_file))
    except ValueError as problem:
        raise ValueError(str(problem).replace("ssl.ca.location", "https.ca.location")) from None


def _load_authorities(context: ssl.SSLContext, config: TlsConfig) -> None:
    try:
        if config.ca_pem is not None:
            text = config.ca_pem.encode("ascii", "ignore")  # any text may be between certificates
            context.load_verify_locations(cadata=text.decode())
        elif config.ca_file is None:
            context.load_default_certs()
        elif Path(config.ca_file).is_dir():
            context.load_verify_locations(capath=config.ca_file)
        else:
            _check_pem("ssl.ca.location", config.ca_file, TRUSTSTORE_HELP)
            context.load_verify_locations(cafile=config.ca_file)
    except ssl.SSLError as problem:
        where = "ssl.ca.pem" if config.ca_pem is not None else f"ssl.ca.location {config.ca_file}"
        raise ValueError(f"{where} holds no certificate in PEM form ({_reason(problem)})") from None


def _load_certificate(context: ssl.SSLContext, config: TlsConfig) -> None:
    password = config.key_password.reveal() if config.key_password is not None else ""
    with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads these from files only
        certificate = config.certificate_file or _written(
            folder, "certificate.pem", config.certificate_pem or ""
        )
        key = config.key_file
        if config.key_pem is not None:
            key = _written(folder, "key.pem", config.key_pem.reveal())
        for name, file in (
            ("ssl.certificate.location", config.certificate_file),
            ("ssl.key.location", config.key_file),
        ):
            if file is not None:
                _check_pem(name, file, KEYSTORE_HELP)
        try:
            # A function, since OpenSSL would prompt on the terminal without a password.
            context.load_cert_chain(certificate, key, password=lambda: password)
        except ssl.SSLError as problem:
            raise ValueError(_about_key(problem, bool(password))) from None


def _about_key(problem: ssl.SSLError, has_password: bool) -> str:
    reason = _reason(problem)
    if "KEY_VALUES_MISMATCH" in reason:
        return "ssl.key.* is not the key of ssl.certificate.*: they belong to different pairs"
    if has_password:
        return f"the client's private key cannot be read: is ssl.key.password right? ({reason})"
    return (
        "the client's certificate or private key cannot be read: is the key encrypted (then it "
        f"needs ssl.key.password), and are both PEM? ({reason})"
    )


def _written(folder: str, name: str, text: str) -> str:
    path = Path(folder) / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def _check_pem(name: str, file: str, words: str) -> None:
    try:
        content = Path(file).read_bytes()
    except OSError as problem:
        raise ValueError(f"{name}: {file} cannot be read ({problem.strerror})") from None
    if PEM_MARK in content:
        return
    kind = " but a Java keystore (JKS)" if content.startswith(JKS_MAGIC) else ""
    if content[:1] == b"\x30":
        kind = " but PKCS#12 or DER"
    raise ValueError(words.format(name=name, file=file, kind=kind))


def _reason(problem: ssl.SSLError) -> str:
    return getattr(problem, "reason", None) or str(problem)


def explain(problem: ssl.SSLError, host: str, port: int, config: TlsConfig) -> KafkaError:
    """Return the error of a failed TLS handshake. It is retriable only if the cause is unknown."""
    broker, reason = f"{host}:{port}", _reason(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return SslAuthenticationFailed(_about_their_certificate(problem, broker, host, config))
    if any(word in reason for word in NOT_TLS):
        return speaks_plain(broker)
    if any(word in reason for word in OF_OUR_CERTIFICATE):
        if config.has_certificate:
            ours = config.certificate_file or "CERTIFICATE.pem"
            return SslAuthenticationFailed(
                f"{broker} refuses our client certificate ({reason}): it has expired (openssl x509 "
                f"-noout -dates -in {ours}), or is not signed by a CA that the broker trusts; look "
                "at the broker's ssl.truststore.*"
            )
        return SslAuthenticationFailed(
            f"{broker} asks for a client certificate ({reason}): give ssl.certificate.location "
            "and ssl.key.location, or ssl.keystore.location"
        )
    if "PROTOCOL_VERSION" in reason or "HANDSHAKE_FAILURE" in reason or "UNSUPPORTED" in reason:
        return SslAuthenticationFailed(
            f"{broker} and this client have no version or cipher of TLS in common ({reason}); "
            f"ours are {', '.join(config.versions)}: compare ssl.enabled.protocols of both"
            + (
                ""
                if config.has_certificate
                else ". Or it asks for a client certificate: give "
                "ssl.certificate.location and ssl.key.location"
            )
        )
    return HungUp(f"{broker}: TLS failed ({reason})")


def _about_their_certificate(
    problem: ssl.SSLCertVerificationError, broker: str, host: str, config: TlsConfig
) -> str:
    said = problem.verify_message.rstrip(".")
    if problem.verify_code in WRONG_HOST:
        return (
            f"{broker} shows a certificate that is not of {host} ({said}): connect by a name that "
            "stands in it, have advertised.listeners name that, or, if you know what that gives "
            "up, set ssl.endpoint.identification.algorithm=none"
        )
    if problem.verify_code in (EXPIRED, NOT_YET):
        return (
            f"the certificate of {broker} is not valid now ({said}): have it renewed there, or, if "
            "it is not out of date, set this machine's clock"
        )
    trusted = config.ca_file or ("ssl.ca.pem" if config.ca_pem else "the CAs of this machine")
    return (
        f"the certificate of {broker} is not signed by a CA that we trust ({said}); we trust "
        f"{trusted}: give the cluster's CA as a PEM file with ssl.ca.location"
    )


def speaks_plain(broker: str) -> SecurityProtocolMismatch:
    """Return the error of a TLS client that has connected to a listener without TLS."""
    return SecurityProtocolMismatch(
        f"{broker} does not speak TLS: set security.protocol to PLAINTEXT (or SASL_PLAINTEXT), or "
        "name the address of a listener with TLS"
    )


def speaks_tls(broker: str) -> SecurityProtocolMismatch:
    """Return the error of a client without TLS that has connected to a TLS listener."""
    return SecurityProtocolMismatch(
        f"{broker} speaks TLS, this client does not: set security.protocol to SSL (or SASL_SSL), "
        "and ssl.ca.location to the cluster's CA"
    )


def is_tls(start: bytes) -> bool:
    """Return whether these bytes begin like a TLS handshake message or alert."""
    return len(start) >= 2 and start[0] in (0x15, 0x16) and start[1] == 0x03
