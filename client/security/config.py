"""The security settings of a client, checked once.

The file does no I/O, so it opens none of the named files. The result is a plain value that can be
pickled (if the token provider can), and shows no secret. A setting that would have no effect is
refused with a message.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...wire.security.jaas import MODULES, parse_jaas
from ...wire.security.secret import EMPTY, Secret
from .oauthbearer import NAME as OAUTHBEARER
from .oauthbearer import check_extensions

VERSIONS = ("TLSv1.2", "TLSv1.3")
NEEDS_TLS = (
    "ssl_ca_location",
    "ssl_ca_pem",
    "ssl_certificate_location",
    "ssl_certificate_pem",
    "ssl_key_location",
    "ssl_key_pem",
    "ssl_keystore_location",
)
NEEDS_SASL = (
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "sasl_jaas_config",
    "sasl_oauthbearer_token_provider",
    "sasl_oauthbearer_token_endpoint_url",
)
EXTENSION = "extension_"
JAAS_USER, JAAS_OAUTH = {"username", "password"}, {"clientId", "clientSecret", "scope"}
TRUSTSTORE_HELP = (
    "{name}: {file} is no PEM file{kind}, and Python reads no other. Convert it: "
    "keytool -list -rfc -keystore {file} > ca.pem, and give ca.pem with ssl.truststore.type=PEM"
)
KEYSTORE_HELP = (
    "{name}: {file} is no PEM file{kind}, and Python reads no other. Convert it: "
    "keytool -importkeystore -srckeystore {file} -destkeystore client.p12 -deststoretype PKCS12; "
    "openssl pkcs12 -in client.p12 -out client.pem, and give client.pem with ssl.keystore.type=PEM "
    "and its password as ssl.key.password"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The TLS certificates and key of a client, each as a file name or as text in PEM."""

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    key_file: str | None = None
    key_pem: Secret | None = None
    key_password: Secret | None = None
    checks_host: bool = True
    verifies: bool = True
    versions: tuple[str, ...] = VERSIONS

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate."""
        return self.certificate_file is not None or self.certificate_pem is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenConfig:
    """The source of a client's OAUTHBEARER tokens, which is a function or an endpoint."""

    provider: Callable[[], Any] | None = None
    url: str = ""
    client_id: str = ""
    client_secret: Secret = EMPTY
    scope: str | None = None
    is_urlencoded: bool = False
    ca_file: str | None = None
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The SASL mechanism and the login of a client."""

    mechanism: str
    username: str = ""
    password: Secret = EMPTY
    tokens: TokenConfig | None = None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    protocol: str
    tls: TlsConfig | None
    sasl: SaslConfig | None


def security_config(settings: Any) -> SecurityConfig | None:
    """Return the security configuration, or None for PLAINTEXT.

    Raises ValueError, whose message contains no secrets.
    """
    protocol = settings.security_protocol
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for names, is_used, other in (
        (NEEDS_TLS, has_tls, "SASL_SSL" if has_sasl else "SSL"),
        (NEEDS_SASL, has_sasl, "SASL_SSL (or SASL_PLAINTEXT)"),
    ):
        for name in names:
            if not is_used and getattr(settings, name) is not None:
                raise ValueError(
                    f"{name.replace('_', '.')} has no effect with security.protocol={protocol}: "
                    f"set security.protocol={other}, or leave it out"
                )
    if protocol == "PLAINTEXT":
        return None
    return SecurityConfig(
        protocol,
        _tls(settings) if has_tls else None,
        _sasl(settings) if has_sasl else None,
    )


def _tls(s: Any) -> TlsConfig:
    _refuse_stores(s)
    unknown = [version for version in s.ssl_enabled_protocols if version not in VERSIONS]
    if unknown or not s.ssl_enabled_protocols:
        raise ValueError(f"ssl.enabled.protocols is a list of {', '.join(VERSIONS)}")
    if s.ssl_ca_location is not None and s.ssl_ca_pem is not None:
        raise ValueError("ssl.ca.location and ssl.ca.pem both name the CAs: give one of them")
    certificate, key = s.ssl_certificate_location, s.ssl_key_location
    if s.ssl_keystore_location is not None:
        if certificate or key or s.ssl_certificate_pem or s.ssl_key_pem:
            raise ValueError("ssl.keystore.location holds certificate and key: give no others")
        certificate = key = s.ssl_keystore_location
    if (certificate or s.ssl_certificate_pem) and not (key or s.ssl_key_pem):
        raise ValueError("a client certificate needs its key: ssl.key.location or ssl.key.pem")
    if (key or s.ssl_key_pem) and not (certificate or s.ssl_certificate_pem):
        raise ValueError("ssl.key.* needs the certificate: ssl.certificate.location or .pem")
    checks = s.ssl_endpoint_identification_algorithm == "https"
    verifies = s.enable_ssl_certificate_verification
    return TlsConfig(
        ca_file=None if s.ssl_ca_location == "probe" else s.ssl_ca_location,
        ca_pem=s.ssl_ca_pem,
        certificate_file=certificate,
        certificate_pem=s.ssl_certificate_pem,
        key_file=key,
        key_pem=s.ssl_key_pem,
        key_password=s.ssl_key_password,
        checks_host=checks and verifies,
        verifies=verifies,
        versions=tuple(s.ssl_enabled_protocols),
    )


def _refuse_stores(s: Any) -> None:
    """Raise ValueError for a key store or trust store in one of Java's binary formats."""
    for kind, password, file, name, words in (
        (s.ssl_truststore_type, s.ssl_truststore_password, s.ssl_ca_location, "truststore",
         TRUSTSTORE_HELP),
        (s.ssl_keystore_type, s.ssl_keystore_password, s.ssl_keystore_location, "keystore",
         KEYSTORE_HELP),
    ):  # fmt: skip
        if kind is not None and kind.upper() != "PEM":
            raise ValueError(
                words.format(name=f"ssl.{name}.type={kind}", file=file or f"the {name}", kind="")
            )
        if password is not None:
            raise ValueError(
                words.format(
                    name=f"ssl.{name}.password",
                    file=file or f"the {name}",
                    kind=" if it has a password",
                )
            )


def _sasl(s: Any) -> SaslConfig:
    mechanism = s.sasl_mechanism
    known = tuple(name for names in MODULES.values() for name in names)
    if mechanism is None:
        raise ValueError(f"{s.security_protocol} needs sasl.mechanism: {', '.join(known)}")
    mechanism = mechanism.upper()
    if mechanism not in known:
        raise ValueError(
            f"sasl.mechanism={mechanism} is not supported by this client: {', '.join(known)}"
        )
    jaas = _jaas_options(s.sasl_jaas_config, mechanism)
    if mechanism == OAUTHBEARER:
        return _oauthbearer(s, jaas)
    username = _one("sasl.username", s.sasl_username, jaas.get("username"))
    password = _one("sasl.password", s.sasl_password, _hidden(jaas.get("password")))
    if not username or password is None:
        raise ValueError(
            f"{mechanism} needs sasl.username and sasl.password (or both in sasl.jaas.config)"
        )
    if "\0" in username or "\0" in password.reveal():
        raise ValueError("sasl.username and sasl.password hold no NUL characters")
    return SaslConfig(mechanism=mechanism, username=username, password=password)


def _jaas_options(config: Secret | None, mechanism: str) -> dict[str, str]:
    if config is None:
        return {}
    module, options = parse_jaas(config)
    if module not in MODULES:
        raise ValueError(f"sasl.jaas.config: {module} is not known here: {', '.join(MODULES)}")
    if mechanism not in MODULES[module]:
        raise ValueError(
            f"sasl.jaas.config names {module}, but sasl.mechanism is {mechanism}: "
            f"it goes with {' or '.join(MODULES[module])}"
        )
    known = JAAS_OAUTH if mechanism == OAUTHBEARER else JAAS_USER
    for name in options:
        if name not in known and not (mechanism == OAUTHBEARER and name.startswith(EXTENSION)):
            raise ValueError(
                f"sasl.jaas.config: {name} would not be honoured; known are {', '.join(known)}"
            )
    return options


def _oauthbearer(s: Any, jaas: dict[str, str]) -> SaslConfig:
    pairs = [text.partition("=")[::2] for text in s.sasl_oauthbearer_extensions]
    from_jaas = {n.removeprefix(EXTENSION): v for n, v in jaas.items() if n.startswith(EXTENSION)}
    extensions = check_extensions(from_jaas | dict(pairs))
    url = s.sasl_oauthbearer_token_endpoint_url
    provider = s.sasl_oauthbearer_token_provider
    if (provider is None) == (url is None):
        raise ValueError(
            "OAUTHBEARER needs one of sasl.oauthbearer.token.provider (a function) and "
            "sasl.oauthbearer.token.endpoint.url (client credentials)"
        )
    if provider is not None:
        tokens = TokenConfig(provider=provider)
        return SaslConfig(mechanism=OAUTHBEARER, tokens=tokens, extensions=extensions)
    if not _can_be_asked(url):
        raise ValueError(
            "sasl.oauthbearer.token.endpoint.url looks like https://login.example.org/token"
        )
    client_id = _one(
        "sasl.oauthbearer.client.credentials.client.id",
        s.sasl_oauthbearer_client_credentials_client_id,
        jaas.get("clientId"),
    )
    secret = _one(
        "sasl.oauthbearer.client.credentials.client.secret",
        s.sasl_oauthbearer_client_credentials_client_secret,
        _hidden(jaas.get("clientSecret")),
    )
    if not client_id or secret is None:
        raise ValueError(
            "the token endpoint needs sasl.oauthbearer.client.credentials.client.id and "
            "sasl.oauthbearer.client.credentials.client.secret"
        )
    tokens = TokenConfig(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=_one("sasl.oauthbearer.scope", s.sasl_oauthbearer_scope, jaas.get("scope")),
        is_urlencoded=s.sasl_oauthbearer_header_urlencode,
        ca_file=s.https_ca_location,
        connect_timeout_ms=s.sasl_login_connect_timeout_ms,
        read_timeout_ms=s.sasl_login_read_timeout_ms,
    )
    return SaslConfig(
        mechanism=OAUTHBEARER, username=client_id, tokens=tokens, extensions=extensions
    )


def _can_be_asked(url: str) -> bool:
    """Return whether an HTTP client can request this URL. A login in the URL is not allowed."""
    try:
        parts = urlsplit(url)
        is_address = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # no valid port, no address
        return False
    is_text = url.isascii() and url.isprintable() and " " not in url
    return parts.scheme in ("http", "https") and is_address and is_text


def _one(name: str, plain: Any, of_jaas: Any) -> Any:
    if plain is not None and of_jaas is not None and plain != of_jaas:
        raise ValueError(f"{name} and sasl.jaas.config differ: give one of them")
    return plain if plain is not None else of_jaas


def _hidden(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)
