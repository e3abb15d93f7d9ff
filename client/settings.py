"""The configuration of clients, with Kafka's dotted names or keywords with underscores.

    Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 20}, compression_type="zstd")

The file does no I/O. Values may be text, as in a properties file. An unknown name or an invalid
value is refused with a message. A setting whose default differs from Kafka's also shows Kafka's
default.
"""

import difflib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

from ..wire.security.secret import Secret

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `kind` is int, bool, str, list, Secret or FunctionType.

    least, most: the bounds of an int. aliases: names of the same setting in other clients.
    """

    name: str
    kind: type
    default: Any
    doc: str
    least: int = 0
    most: int = INT_MAX
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def keyword(self) -> str:
        """The name of the setting with underscores, as a keyword argument in Python."""
        return self.name.replace(".", "_")

    def read(self, value: Any) -> Any:
        """Return a value converted to the kind of the setting. Raises ValueError with a message."""
        if value is None:
            return None
        if isinstance(value, bytes | bytearray):  # as text it would be b'...'
            raise ValueError(f"{self.name} is given as text, not as bytes")
        if self.kind is bool:
            return self._boolean(value)
        if self.kind is int:
            return self._number(value)
        if self.kind is list:
            items = value.split(",") if isinstance(value, str) else list(value)
            return tuple(str(item).strip() for item in items if str(item).strip())
        if self.kind is Secret:
            return value if isinstance(value, Secret) else Secret(str(value))
        if self.kind is FunctionType:
            found: Any = imported(self.name, value) if isinstance(value, str) else value
            if not callable(found):
                raise ValueError(f"{self.name} is a function, not {type(found).__name__}")
            return found
        text = str(value)
        if self.choices:
            found = [choice for choice in self.choices if choice.lower() == text.lower()]
            if not found:
                raise ValueError(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}")
            return found[0]
        return text

    def _boolean(self, value: Any) -> bool:
        known = {"true": True, "false": False}.get(str(value).lower())
        if known is None:
            raise ValueError(f"{self.name} is true or false, not {value!r}")
        return known

    def _number(self, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name} is a whole number, not {value!r}") from None
        if not self.least <= number <= self.most or number != float(value):
            raise ValueError(f"{self.name} lies in {self.least}..{self.most}, not {value!r}")
        return number


COMMON = (
    Setting("bootstrap.servers", list, (), "The client finds the cluster by these brokers, each "
            "host:port."),
    Setting("client.id", str, "oncelog", "The brokers' logs name the client so."),
    Setting("request.timeout.ms", int, 30_000, "A request fails when its answer takes longer.", 1),
    Setting("metadata.max.age.ms", int, 300_000, "The client asks for the cluster's metadata again "
            "after this time."),
    Setting("retry.backoff.ms", int, 20, "The client pauses so long before its first retry (Kafka: "
            "100)."),
    Setting("retry.backoff.max.ms", int, 500, "Pauses between retries grow up to this time (Kafka: "
            "1000)."),
)  # fmt: skip
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
OAUTH = "org.apache.kafka.common.security.oauthbearer."
LOGIN_HANDLERS = (
    f"{OAUTH}OAuthBearerLoginCallbackHandler",
    f"{OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
RETRIEVERS = (f"{OAUTH}ClientCredentialsJwtRetriever", f"{OAUTH}DefaultJwtRetriever")
SECURITY = (
    Setting("security.protocol", str, "PLAINTEXT", "It says whether connections use TLS, SASL or "
            "both.", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    Setting("ssl.ca.location", str, None, "The client trusts the CAs of this PEM file (or folder), "
            "by default those of the machine.", aliases=("ssl.truststore.location",)),
    Setting("ssl.ca.pem", str, None, "It holds the PEM of ssl.ca.location as text.",
            aliases=("ssl.truststore.certificates",)),
    Setting("ssl.truststore.type", str, None, "It may be PEM; the error for another type says how "
            "to convert the file."),
    Setting("ssl.truststore.password", Secret, None, "It belongs to a JKS or PKCS12 file, which is "
            "refused."),
    Setting("ssl.certificate.location", str, None, "This PEM file holds the client's certificate."),
    Setting("ssl.certificate.pem", str, None, "It holds the PEM of ssl.certificate.location as "
            "text.", aliases=("ssl.keystore.certificate.chain",)),
    Setting("ssl.key.location", str, None, "This PEM file holds the client's private key."),
    Setting("ssl.key.pem", Secret, None, "It holds the PEM of ssl.key.location as text.",
            aliases=("ssl.keystore.key",)),
    Setting("ssl.key.password", Secret, None, "It decrypts the private key."),
    Setting("ssl.keystore.location", str, None, "This PEM file holds both the certificate and the "
            "private key."),
    Setting("ssl.keystore.type", str, None, "It may be PEM; the error for another type says how to "
            "convert the file."),
    Setting("ssl.keystore.password", Secret, None, "It belongs to a JKS or PKCS12 file, which is "
            "refused."),
    Setting("ssl.endpoint.identification.algorithm", str, "https", "With none (or empty) the "
            "client accepts a certificate of another host.", choices=("https", "none", "")),
    Setting("enable.ssl.certificate.verification", bool, True, "With false the client trusts any "
            "server; use that in tests only."),
    Setting("ssl.enabled.protocols", list, ("TLSv1.2", "TLSv1.3"), "Connections may use these "
            "versions of TLS."),
    Setting("sasl.mechanism", str, None, f"It is one of {', '.join(MECHANISMS)}.",
            aliases=("sasl.mechanisms",)),
    Setting("sasl.username", str, None, "PLAIN and SCRAM log in with this name."),
    Setting("sasl.password", Secret, None, "PLAIN and SCRAM log in with this password."),
    Setting("sasl.jaas.config", Secret, None, "It gives user and password, or client id and "
            "secret, in the form of Java's clients."),
    Setting("sasl.oauthbearer.token.provider", FunctionType, None, "This function, or coroutine "
            "function, returns the token, or (token, wall-clock seconds of its end); as text it is "
            "package.module:function."),
    Setting("sasl.oauthbearer.token.endpoint.url", str, None, "The client requests tokens here by "
            "its credentials."),
    Setting("sasl.oauthbearer.client.credentials.client.id", str, None, "The token endpoint knows "
            "the client by this id.", aliases=("sasl.oauthbearer.client.id",)),
    Setting("sasl.oauthbearer.client.credentials.client.secret", Secret, None, "The client proves "
            "its id to the token endpoint by this secret.",
            aliases=("sasl.oauthbearer.client.secret",)),
    Setting("sasl.oauthbearer.scope", str, None, "The client requests tokens of this scope."),
    Setting("sasl.oauthbearer.extensions", list, (), "The broker gets these name=value,... "
            "(KIP-342)."),
    Setting("sasl.oauthbearer.header.urlencode", bool, False, "The client encodes its id and "
            "secret as RFC 6749 says."),
    Setting("sasl.oauthbearer.method", str, "default", "Both values mean client credentials.",
            choices=("default", "oidc")),
    Setting("sasl.login.callback.handler.class", str, None, "Java's name for client credentials "
            "has no effect.", choices=LOGIN_HANDLERS),
    Setting("sasl.oauthbearer.jwt.retriever.class", str, None, "Java's name for client credentials "
            "has no effect.", choices=RETRIEVERS),
    Setting("sasl.login.connect.timeout.ms", int, 5_000, "A connection to the token endpoint fails "
            "after this time.", 1),
    Setting("sasl.login.read.timeout.ms", int, 5_000, "An answer of the token endpoint may take "
            "this long.", 1),
    Setting("https.ca.location", str, None, "The client trusts these CAs at the token endpoint."),
)  # fmt: skip
PRODUCER = (
    *COMMON,
    *SECURITY,
    Setting("acks", str, "all", "A record is acknowledged by all in-sync replicas, the leader (1) "
            "or none (0).", choices=("all", "-1", "1", "0")),
    Setting("enable.idempotence", bool, None, "Retries write each record once and in order; it is "
            "true by default with acks=all."),
    Setting("transactional.id", str, None, "This id makes the producer transactional."),
    Setting("transaction.timeout.ms", int, 60_000, "The cluster aborts a transaction that is open "
            "longer.", 1),
    Setting("transaction.two.phase.commit.enable", bool, False, "Transactions never time out and "
            "may be prepared (KIP-939)."),
    Setting("oncelog.transaction.version.max", int, 2, "With 1 the producer works as clients "
            "before KIP-890.", 1, 2),
    Setting("linger.ms", int, 5, "A batch waits so long for more records."),
    Setting("batch.size", int, 256 * 1024, "A batch holds up to this many bytes (Kafka: 16384; "
            "large batches cost Python less).", 1),
    Setting("buffer.memory", int, 32 * 1024 * 1024, "The producer holds up to this many bytes of "
            "unacknowledged records.", 1, LONG_MAX),
    Setting("max.block.ms", int, 60_000, "A call waits so long for the cluster."),
    Setting("max.request.size", int, 1024 * 1024, "A record, and the batches of a request, have at "
            "most this many bytes.", 1),
    Setting("compression.type", str, "none", "The producer compresses its batches with this.",
            choices=("none", "gzip", "snappy", "lz4", "zstd")),
    Setting("delivery.timeout.ms", int, 120_000, "A record fails when it is not acknowledged in "
            "this time.", 1),
    Setting("retries", int, INT_MAX, "A batch is sent again so often; delivery.timeout.ms bounds "
            "it in any case."),
    Setting("max.in.flight.requests.per.connection", int, 5, "Up to this many batches of one "
            "partition are sent before the first is answered.", 1),
    Setting("partitioner.ignore.keys", bool, False, "The producer fills one partition after "
            "another in spite of keys."),
)  # fmt: skip
RESETS = ("latest", "earliest", "none")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
CONSUMER = (
    *COMMON,
    *SECURITY,
    Setting("group.id", str, None, "This id makes the consumer a member of a group."),
    Setting("group.instance.id", str, None, "This id makes it a static member (KIP-345)."),
    Setting("group.protocol", str, "classic", "With consumer the brokers assign (KIP-848).",
            choices=("classic", "consumer")),
    Setting("group.remote.assignor", str, None, "With group.protocol=consumer the brokers assign "
            "by uniform, range or another assignor they have, by default by their first."),
    Setting("client.rack", str, None, "With group.protocol=consumer it tells the brokers' "
            "assignors where the consumer runs."),
    Setting("isolation.level", str, "read_uncommitted", "With read_committed the consumer skips "
            "aborted records and stops before open transactions.",
            choices=("read_uncommitted", "read_committed")),
    Setting("auto.offset.reset", str, "latest", "The consumer begins here where it has no valid "
            "offset.", choices=RESETS),
    Setting("enable.auto.commit", bool, True, "The consumer commits polled offsets regularly and "
            "when it closes."),
    Setting("auto.commit.interval.ms", int, 5_000, "The consumer commits this often."),
    Setting("fetch.min.bytes", int, 1, "A broker waits for this many bytes before it answers."),
    Setting("fetch.max.wait.ms", int, 500, "A broker waits no longer than this."),
    Setting("fetch.max.bytes", int, 16 * 1024 * 1024, "One answer has up to this many bytes "
            "(Kafka: 50 MB)."),
    Setting("max.partition.fetch.bytes", int, 4 * 1024 * 1024, "One answer has up to this many "
            "bytes of a partition (Kafka: 1 MB)."),
    Setting("max.poll.records", int, 10_000, "One poll returns at most this many records (Kafka: "
            "500).", 1),
    Setting("max.poll.interval.ms", int, 300_000, "A consumer that polls less often leaves its "
            "group.", 1),
    Setting("session.timeout.ms", int, 45_000, "A member without a heartbeat for this time is "
            "removed from its group.", 1),
    Setting("heartbeat.interval.ms", int, 3_000, "A member sends heartbeats this often.", 1),
    Setting("partition.assignment.strategy", list, ("range", "cooperative-sticky"),
            "The group chooses among range, roundrobin, sticky and cooperative-sticky; the last "
            "alone is cooperative."),
    Setting("default.api.timeout.ms", int, 60_000, "A call waits so long for the cluster."),
)  # fmt: skip
ADMIN = (*COMMON[:3], *SECURITY)
ADMIN_NAMES = frozenset(name for row in ADMIN for name in (row.name, *row.aliases))
SECURITY_NAMES = frozenset(name for row in SECURITY for name in (row.name, *row.aliases))
_SECRETS = frozenset(
    name.replace(".", separator)
    for row in SECURITY
    if row.kind is Secret
    for name in (row.name, *row.aliases)
    for separator in "._"
)


class Settings(SimpleNamespace):
    """The values of settings, as attributes by keyword name."""

    def but(self, **values: Any) -> "Settings":
        """Return a copy of the settings in which `values` replace the values of the same names."""
        return Settings(**{**vars(self), **values})


def read_settings(
    rows: Sequence[Setting], config: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Settings:
    """Return the values of the settings `rows`, from defaults, `config` and keywords.

    A later one of these sources wins. Raises ValueError for an unknown name or an invalid value.
    """
    by_name = {name: row for row in rows for name in (row.name, *row.aliases)}
    by_keyword = {name.replace(".", "_"): row for name, row in by_name.items()}
    values = {row.keyword: row.default for row in rows}
    for given, known in ((config or {}, by_name), (keywords, by_keyword)):
        given_as: dict[str, str] = {}
        for name, value in given.items():
            row = known.get(name)
            if row is None:
                raise ValueError(_unknown(name, known))
            read = row.read(value)
            if given_as.setdefault(row.name, name) != name and read != values[row.keyword]:
                raise ValueError(f"{given_as[row.name]} and {name} mean the same, and differ here")
            values[row.keyword] = read
    return Settings(**values)


def imported(name: str, place: str) -> Any:
    """Import and return a function, for which `place` is the text `package.module:function`.

    Raises ValueError with `name`, the name of the setting.
    """
    module, separator, attribute = place.partition(":")
    if not separator or not module or not attribute:
        raise ValueError(f"{name} is a function, or as text package.module:function")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ValueError(f"{name}: {place} cannot be imported ({problem})") from None


def hidden_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of settings in which each secret is a `Secret`, which is not shown."""
    return {
        name: Secret(value) if name in _SECRETS and isinstance(value, str) else value
        for name, value in config.items()
    }


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"there is no setting {name}" + (f"; is {near[0]} meant?" if near else "")


def producer_settings(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Return a producer's settings, with checks of idempotence, or raise ValueError."""
    s = read_settings(PRODUCER, config, keywords)
    s = s.but(acks={"all": -1, "-1": -1, "1": 1, "0": 0}[s.acks])
    asked = s.enable_idempotence
    if s.transactional_id is not None and (asked is False or not s.transactional_id):
        raise ValueError("a transactional.id is not empty, and needs enable.idempotence=true")
    if s.transaction_two_phase_commit_enable and s.transactional_id is None:
        raise ValueError("transaction.two.phase.commit.enable needs a transactional.id")
    wanted = asked if asked is not None else s.acks == -1 or s.transactional_id is not None
    if wanted:
        for name, is_right, needed in (
            ("acks", s.acks == -1, "all"),
            ("retries", s.retries > 0, "above 0"),
            (
                "max.in.flight.requests.per.connection",
                s.max_in_flight_requests_per_connection <= 5,
                "at most 5",
            ),
        ):
            if not is_right:
                raise ValueError(f"idempotence needs {name} to be {needed}")
    if s.delivery_timeout_ms < s.linger_ms:
        raise ValueError("delivery.timeout.ms must not be below linger.ms")
    return s.but(enable_idempotence=wanted)


def consumer_settings(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Return a consumer's settings, or raise ValueError."""
    s = read_settings(CONSUMER, config, keywords)
    for name in s.partition_assignment_strategy:
        if name not in ASSIGNORS:
            raise ValueError(f"{name!r} is not an assignor: {', '.join(ASSIGNORS)}")
    if not s.partition_assignment_strategy:
        raise ValueError("partition.assignment.strategy names at least one assignor")
    _check_protocol(s)
    if s.group_id == "":
        raise ValueError("group.id must not be empty")
    if s.heartbeat_interval_ms >= s.session_timeout_ms:
        raise ValueError("heartbeat.interval.ms must be below session.timeout.ms")
    return s


OF_CLASSIC = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")


def _check_protocol(s: Settings) -> None:
    """Raise ValueError for a setting without effect under group.protocol, as Java's clients do."""
    if s.group_protocol == "classic":
        if s.group_remote_assignor is not None:
            raise ValueError("group.remote.assignor needs group.protocol=consumer")
        if s.client_rack is not None:
            raise ValueError("client.rack needs group.protocol=consumer")
        return
    if s.group_id is None:
        raise ValueError("group.protocol=consumer needs a group.id")
    for row in CONSUMER:
        if row.name in OF_CLASSIC and getattr(s, row.keyword) != row.default:
            raise ValueError(f"{row.name} is of no use with group.protocol=consumer: brokers say")
