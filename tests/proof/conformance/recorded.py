"""The recorded survey of Apache Kafka 4.4.0, and the survey of oncelog from the code.

The following commands record the survey again by Maven and Java, and write docs/protocol.md:
.venv/bin/python -m tests.proof.conformance.recorded; .venv/bin/python -m tests.tidy.test_docs
"""

import json
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from oncelog.node.config.broker_config import BROKER_KEYS
from oncelog.node.config.client_metrics import CLIENT_METRICS_KEYS
from oncelog.node.config.group_configs import GROUP_KEYS
from oncelog.node.handlers.api_table import served_apis
from oncelog.proof.conformance.survey import (
    Survey,
    SurveyedApi,
    SurveyedFeature,
    survey_fields,
    survey_of,
)
from oncelog.proof.conformance.surveying import survey
from oncelog.storage.topic_configs import TOPIC_CONFIGS
from oncelog.wire.features import FEATURES

from ...interop.kafka_peer import KafkaPeer

FILE = Path(__file__).with_name("kafka_4_4.json")


@cache
def kafka() -> Survey:
    return survey_of(json.loads(FILE.read_text(encoding="utf-8")))


def ours() -> Survey:
    """Return oncelog's survey from the tables in the code, without a running broker."""
    log = logging.getLogger(__name__)
    apis = {
        int(api.key): SurveyedApi(
            api.min_version if api.advertised_from is None else api.advertised_from,
            api.max_version,
        )
        for api in served_apis(log)
    }
    features = {
        name: SurveyedFeature(feature.lowest, feature.highest, feature.default or None)
        for name, feature in FEATURES.items()
    }
    topic_keys = (name for name, row in TOPIC_CONFIGS.items() if not row.is_internal)
    configs = {
        "topic": frozenset(topic_keys),
        "broker": frozenset(
            name
            for name, key in BROKER_KEYS.items()
            if key.is_shown and key.shown_unset != "hidden"
        ),
        "client-metrics": frozenset(CLIENT_METRICS_KEYS),
        "group": frozenset(GROUP_KEYS),
    }
    return Survey("", None, apis, features, configs)


@contextmanager
def running_kafka() -> Iterator[str]:
    """Yield the bootstrap line of a new Apache Kafka."""
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaPeer(Path(folder)) as peer,
    ):
        yield peer.bootstrap


def written(found: Survey) -> str:
    """Return the survey as JSON, with a line for each API and without address and cluster id."""
    fields = survey_fields(found) | {"address": "", "cluster_id": None}
    apis = ",\n  ".join(json.dumps(row) for row in fields.pop("apis"))
    rest = json.dumps(fields, indent=1).removeprefix("{")
    return f'{{\n "apis": [\n  {apis}\n ],{rest}\n'


if __name__ == "__main__":
    with running_kafka() as bootstrap:
        found = survey({"bootstrap.servers": bootstrap}, print)
    FILE.write_text(written(found), encoding="utf-8")
    print("written:", FILE.name)
