"""Surveys a cluster, by requests to one of its brokers."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ...client.cluster_view import parse_bootstrap
from ...deploy.cluster.failure import Failure
from ...wire.printable import printable
from .asking import ANSWER_S, AskedBroker, is_encodable
from .harmless import HARMLESS, NEEDS_OFFSETS_TOPIC
from .outcomes import AskOutcome, not_asked
from .survey import (
    CONFIG_TYPES,
    Survey,
    SurveyedApi,
    SurveyedFeature,
    api_label,
)

API_VERSIONS, METADATA, CREATE_TOPICS, DESCRIBE_CONFIGS = 18, 3, 19, 32
SOFTWARE = {"client_software_name": "oncelog", "client_software_version": "1"}
FEATURES_FROM = 3
CONFIGS_TOLD_FROM = 5  # of CreateTopics
APIS_MAX, VERSIONS_MAX = 500, 100  # limits of what a broker advertises: APIs, versions of one API
OFFSETS_TOPIC = "__consumer_offsets"
OF_THE_LOGIN = (17, 36)  # SaslHandshake, SaslAuthenticate
NO_TOPIC = NO_GROUP = NO_SUBSCRIPTION = "oncelog-conformance"
PROGRESS_EVERY_S = 2.0
BROKERS_TRIED_MAX = 20


def survey(config: Mapping[str, Any], tell: Any, *, answer_s: float = ANSWER_S) -> Survey:
    """Survey a cluster, or raise Failure.

    `tell` is called with a sentence about the progress every two seconds.
    """
    broker, answer = _first_contact(config, answer_s)
    try:
        return _survey(broker, answer, tell)
    finally:
        broker.close()


def _first_contact(config: Mapping[str, Any], answer_s: float) -> tuple[AskedBroker, Any]:
    """Return a connection to the first bootstrap broker that answers, and its API versions."""
    heard: list[str] = []
    for host, port in parse_bootstrap(str(config["bootstrap.servers"])):
        broker = AskedBroker(config, host, port, answer_s=answer_s)
        outcome, answer = broker.ask(API_VERSIONS, 0, {})
        if outcome.came == "served":
            return broker, answer
        broker.close()
        heard.append(f"{broker.address}: {outcome}")
    raise Failure(f"No broker answers ApiVersions ({'; '.join(heard)}).")


def _survey(broker: AskedBroker, answer: Any, tell: Any) -> Survey:
    advertised = {
        row.api_key: (row.min_version, row.max_version)
        for row in answer.api_keys
        if 0 <= row.min_version <= row.max_version < row.min_version + VERSIONS_MAX
    }
    if not advertised or len(answer.api_keys) > APIS_MAX:
        raise Failure(
            f"{broker.address} advertises {len(answer.api_keys)} APIs, so it is not a broker."
        )
    metadata = _ask_newest(
        broker,
        advertised,
        METADATA,
        {
            "topics": [{"name": OFFSETS_TOPIC}],
            "allow_auto_topic_creation": False,
        },
        oldest=4,
    )
    topics = [] if metadata is None else metadata.topics
    has_offsets = any(not topic.error_code for topic in topics)
    progress = _Progress(tell, sum(1 + high - low for low, high in advertised.values()))
    apis: dict[int, SurveyedApi] = {}
    for key, (oldest, newest) in sorted(advertised.items()):
        came: dict[int, AskOutcome] = {}
        for version in range(oldest, newest + 1):
            progress.at(f"{api_label(key)} {version}")
            came[version] = _ask(broker, key, version, has_offsets=has_offsets)
        apis[key] = SurveyedApi(oldest, newest, came)
    return Survey(
        address=broker.address,
        cluster_id=getattr(metadata, "cluster_id", None),
        apis=apis,
        features=_features(broker, advertised),
        configs=_configs(broker, advertised, metadata),
        stopped=printable(broker.stopped),
    )


def _ask(broker: AskedBroker, key: int, version: int, *, has_offsets: bool) -> AskOutcome:
    if key not in HARMLESS or not is_encodable(key, version):
        return not_asked("this client has no schema for it")
    if key in OF_THE_LOGIN and broker.has_login:
        return not_asked("it is used by the login, and a second request would begin another login")
    if (key, version) in NEEDS_OFFSETS_TOPIC and not has_offsets:
        return not_asked(f"it would create {OFFSETS_TOPIC}")
    outcome, _ = broker.ask(key, version, HARMLESS[key])
    return outcome


def _ask_newest(
    broker: AskedBroker,
    advertised: Mapping[int, tuple[int, int]],
    key: int,
    values: Any,
    oldest: int = 0,
) -> Any:
    """Send a request in the newest common version, and return the decoded answer.

    Return None without a readable answer, or if no common version is at least `oldest`.
    """
    low, high = advertised.get(key, (1, 0))
    for version in range(high, max(low, oldest) - 1, -1):
        if is_encodable(key, version):
            return broker.ask(key, version, values)[1]
    return None


def _features(
    broker: AskedBroker, advertised: Mapping[int, tuple[int, int]]
) -> dict[str, SurveyedFeature]:
    answer = _ask_newest(broker, advertised, API_VERSIONS, SOFTWARE, FEATURES_FROM)
    if answer is None:
        return {}
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    return {
        row.name: SurveyedFeature(row.min_version, row.max_version, levels.get(row.name))
        for row in answer.supported_features
    }


def _configs(
    broker: AskedBroker, advertised: Mapping[int, tuple[int, int]], metadata: Any
) -> dict[str, frozenset[str]]:
    found = {"topic": _topic_keys(broker, advertised)}
    nodes = [] if metadata is None else list(metadata.brokers)
    nodes.sort(key=lambda node: (node.host, node.port) != (broker.host, broker.port))
    names: dict[str, Iterable[str]] = {
        "broker": [str(node.node_id) for node in nodes[:BROKERS_TRIED_MAX]],
        "client-metrics": [NO_SUBSCRIPTION],
        "group": [NO_GROUP],
    }
    for kind, tried in names.items():
        keys = (_keys(broker, advertised, CONFIG_TYPES[kind], name) for name in tried)
        found[kind] = next((each for each in keys if each), frozenset())
    return found


def _keys(
    broker: AskedBroker, advertised: Mapping[int, tuple[int, int]], resource_type: int, name: str
) -> frozenset[str]:
    """Return the configuration keys of a resource, or no keys after an error.

    The keys of a broker are described only by that broker.
    """
    resource = {
        "resource_type": resource_type,
        "resource_name": name,
        "configuration_keys": None,
    }
    answer = _ask_newest(broker, advertised, DESCRIBE_CONFIGS, {"resources": [resource]}, 1)
    rows = [] if answer is None else answer.results
    return frozenset(each.name for row in rows if not row.error_code for each in row.configs)


def _topic_keys(broker: AskedBroker, advertised: Mapping[int, tuple[int, int]]) -> frozenset[str]:
    """Return the configuration keys of a topic, from a CreateTopics request that only validates."""
    values = {
        "topics": [{"name": NO_TOPIC, "num_partitions": 1, "replication_factor": 1}],
        "timeout": 5_000,
        "validate_only": True,
    }
    answer = _ask_newest(broker, advertised, CREATE_TOPICS, values, CONFIGS_TOLD_FROM)
    rows = [] if answer is None else answer.topics
    return frozenset(each.name for row in rows for each in row.configs or ())


class _Progress:
    """Reports the progress of a survey from time to time."""

    def __init__(self, tell: Any, count: int) -> None:
        self._tell, self._count, self._done = tell, count, 0
        self._told_s = time.monotonic()

    def at(self, what: str) -> None:
        if time.monotonic() - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = time.monotonic()
            self._tell(f"{self._done} of {self._count} requests are done; the next is {what}")
        self._done += 1
