"""The configuration of clients, with Kafka's dotted names or keywords with underscores.

    Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": 20}, compression_type="zstd")

Pure. Values may be text, as in a properties file. An unknown name or an invalid value is refused
with a message. Rows with another default than Kafka's name Kafka's.
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
    """One setting; kind is int, bool, str, list, Secret or FunctionType.

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
        """The name as a Python keyword."""
        return self.name.replace(".", "_")

    def read(self, value: Any) -> Any:
        """Return a value in its kind; raise ValueError with a message."""
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
    Setting("bootstrap.servers", list, (), "host:port of some brokers."),
    Setting("client.id", str, "oncelog", "How brokers' logs name this client."),
    Setting("request.timeout.ms", int, 30_000, "How long an answer may take.", 1),
    Setting("metadata.max.age.ms", int, 300_000, "After this the cluster is looked at anew."),
    Setting("retry.backoff.ms", int, 20, "The first pause before a retry (Kafka: 100)."),
    Setting("retry.backoff.max.ms", int, 500, "The longest pause (Kafka: 1000)."),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
OAUTH = "org.apache.kafka.common.security.oauthbearer."
LOGIN_HANDLERS = (
    f"{OAUTH}OAuthBearerLoginCallbackHandler",
    f"{OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
RETRIEVERS = (f"{OAUTH}ClientCredentialsJwtRetriever", f"{OAUTH}DefaultJwtRetriever")
SECURITY = (
    Setting("security.protocol", str, "PLAINTEXT", "How brokers are spoken to.", choices=(
        "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL",
    )),
    Setting("ssl.ca.location", str, None, "A PEM file (or a folder) with the CAs to trust; "
            "without: those of this machine.", aliases=("ssl.truststore.location",)),
    Setting("ssl.ca.pem", str, None, "The same as text.", aliases=("ssl.truststore.certificates",)),
    Setting("ssl.truststore.type", str, None, "PEM; others are refused with the way to convert."),
    Setting("ssl.truststore.password", Secret, None, "Of a JKS or PKCS12 file, which is refused."),
    Setting("ssl.certificate.location", str, None, "A PEM file with the client's certificate."),
    Setting("ssl.certificate.pem", str, None, "The same as text.",
            aliases=("ssl.keystore.certificate.chain",)),
    Setting("ssl.key.location", str, None, "A PEM file with its private key."),
    Setting("ssl.key.pem", Secret, None, "The same as text.", aliases=("ssl.keystore.key",)),
    Setting("ssl.key.password", Secret, None, "Of the private key."),
    Setting("ssl.keystore.location", str, None, "One PEM file with certificate and private key."),
    Setting("ssl.keystore.type", str, None, "PEM; others are refused with the way to convert."),
    Setting("ssl.keystore.password", Secret, None, "Of a JKS or PKCS12 file, which is refused."),
    Setting("ssl.endpoint.identification.algorithm", str, "https", "none (or empty): a certificate "
            "may be of another host.", choices=("https", "none", "")),
    Setting("enable.ssl.certificate.verification", bool, True, "false: whoever answers is trusted; "
            "for tests."),
    Setting("ssl.enabled.protocols", list, ("TLSv1.2", "TLSv1.3"), "Versions of TLS."),
    Setting("sasl.mechanism", str, None, ", ".join(MECHANISMS) + ".", aliases=("sasl.mechanisms",)),
    Setting("sasl.username", str, None, "For PLAIN and SCRAM."),
    Setting("sasl.password", Secret, None, "For PLAIN and SCRAM."),
    Setting("sasl.jaas.config", Secret, None, "User and password, or client id and secret, in the "
            "form of Java's clients."),
    Setting("sasl.oauthbearer.token.provider", FunctionType, None, "A function, or a coroutine "
            "function: the token, or (token, wall-clock seconds of its end); as text "
            "package.module:function."),
    Setting("sasl.oauthbearer.token.endpoint.url", str, None, "Where tokens are asked for by "
            "client credentials."),
    Setting("sasl.oauthbearer.client.credentials.client.id", str, None, "The name there.",
            aliases=("sasl.oauthbearer.client.id",)),
    Setting("sasl.oauthbearer.client.credentials.client.secret", Secret, None, "The secret there.",
            aliases=("sasl.oauthbearer.client.secret",)),
    Setting("sasl.oauthbearer.scope", str, None, "What the token is asked for."),
    Setting("sasl.oauthbearer.extensions", list, (), "name=value,... for the broker (KIP-342)."),
    Setting("sasl.oauthbearer.header.urlencode", bool, False, "Id and secret as RFC 6749 says."),
    Setting("sasl.oauthbearer.method", str, "default", "oidc: by client credentials, as without.",
            choices=("default", "oidc")),
    Setting("sasl.login.callback.handler.class", str, None, "Java's, for client credentials; of "
            "no effect.", choices=LOGIN_HANDLERS),
    Setting("sasl.oauthbearer.jwt.retriever.class", str, None, "The same.", choices=RETRIEVERS),
    Setting("sasl.login.connect.timeout.ms", int, 5_000, "To the token endpoint.", 1),
    Setting("sasl.login.read.timeout.ms", int, 5_000, "Of its answer.", 1),
    Setting("https.ca.location", str, None, "As ssl.ca.location, for the token endpoint."),
)  # fmt: skip
PRODUCER = (
    *COMMON,
    *SECURITY,
    Setting("acks", str, "all", "Who must have a record.", choices=("all", "-1", "1", "0")),
    Setting("enable.idempotence", bool, None, "Each record once and in order; true with acks=all."),
    Setting("transactional.id", str, None, "Makes the producer transactional."),
    Setting("transaction.timeout.ms", int, 60_000, "The cluster aborts after this.", 1),
    Setting(
        "transaction.two.phase.commit.enable",
        bool,
        False,
        "Transactions never time out and may be prepared (KIP-939).",
    ),
    Setting("oncelog.transaction.version.max", int, 2, "1: as clients before KIP-890.", 1, 2),
    Setting("linger.ms", int, 5, "How long a batch waits for more records."),
    Setting("batch.size", int, 256 * 1024, "Bytes (Kafka: 16384; Python works by batches).", 1),
    Setting("buffer.memory", int, 32 * 1024 * 1024, "Bytes not decided yet.", 1, LONG_MAX),
    Setting("max.block.ms", int, 60_000, "How long a call may wait for the cluster."),
    Setting(
        "max.request.size", int, 1024 * 1024, "Bytes of a record, and of batches sent at once.", 1
    ),
    Setting(
        "compression.type",
        str,
        "none",
        "Of batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    Setting("delivery.timeout.ms", int, 120_000, "After this a record has failed.", 1),
    Setting("retries", int, INT_MAX, "Bounded by delivery.timeout.ms in any case."),
    Setting("max.in.flight.requests.per.connection", int, 5, "Batches of one partition.", 1),
    Setting("partitioner.ignore.keys", bool, False, "Stick to a partition in spite of keys."),
)
RESETS = ("latest", "earliest", "none")
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
CONSUMER = (
    *COMMON,
    *SECURITY,
    Setting("group.id", str, None, "Makes the consumer a member of a group."),
    Setting("group.instance.id", str, None, "Makes it a static member (KIP-345)."),
    Setting("group.protocol", str, "classic", "consumer: the brokers assign (KIP-848).", choices=(
        "classic", "consumer",
    )),
    Setting("group.remote.assignor", str, None, "Of group.protocol=consumer: uniform, range, or "
            "another one that brokers have; without: their first."),
    Setting("client.rack", str, None, "Of group.protocol=consumer: where it runs, for the brokers' "
            "assignors."),
    Setting("isolation.level", str, "read_uncommitted", "Which records are seen.", choices=(
        "read_uncommitted", "read_committed",
    )),
    Setting("auto.offset.reset", str, "latest", "Where to begin without one.", choices=RESETS),
    Setting("enable.auto.commit", bool, True, "Commit what was polled, by time and at the end."),
    Setting("auto.commit.interval.ms", int, 5_000, "How often."),
    Setting("fetch.min.bytes", int, 1, "How much a broker waits for."),
    Setting("fetch.max.wait.ms", int, 500, "How long it waits."),
    Setting("fetch.max.bytes", int, 16 * 1024 * 1024, "In one answer (Kafka: 50 MB)."),
    Setting("max.partition.fetch.bytes", int, 4 * 1024 * 1024, "Of one partition (Kafka: 1 MB)."),
    Setting("max.poll.records", int, 10_000, "The most that one poll gives (Kafka: 500).", 1),
    Setting("max.poll.interval.ms", int, 300_000, "Who polls less often leaves its group.", 1),
    Setting("session.timeout.ms", int, 45_000, "Silence after which a member is dead.", 1),
    Setting("heartbeat.interval.ms", int, 3_000, "How often a member shows that it lives.", 1),
    Setting("partition.assignment.strategy", list, ("range", "cooperative-sticky"),
            "range, roundrobin, sticky, cooperative-sticky; the last alone is cooperative."),
    Setting("default.api.timeout.ms", int, 60_000, "How long a call may wait for the cluster."),
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
    """Values by keyword name, as attributes."""

    def but(self, **values: Any) -> "Settings":
        """Return a copy with some other values."""
        return Settings(**{**vars(self), **values})


def read_settings(
    rows: Sequence[Setting], config: Mapping[str, Any] | None, keywords: Mapping[str, Any]
) -> Settings:
    """Read defaults, then the dotted names of `config`, then keywords; raise ValueError."""
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
    """Import `package.module:function`, for files and options, which are text."""
    module, separator, attribute = place.partition(":")
    if not separator or not module or not attribute:
        raise ValueError(f"{name} is a function, or as text package.module:function")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise ValueError(f"{name}: {place} cannot be imported ({problem})") from None


def hidden_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted names or keywords, with secrets as `Secret`."""
    return {
        name: Secret(value) if name in _SECRETS and isinstance(value, str) else value
        for name, value in config.items()
    }


def _unknown(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 1)
    return f"there is no setting {name}" + (f"; is {near[0]} meant?" if near else "")


def producer_settings(config: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> Settings:
    """Return a producer's settings, with idempotence decided and checked; raise ValueError."""
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
    """Return a consumer's settings; raise ValueError."""
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
    """Refuse settings without effect under the group's protocol, as Java's clients do."""
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
