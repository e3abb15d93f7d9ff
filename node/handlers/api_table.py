"""The table of all APIs of a broker, which ApiVersions, the tests and the docs read.

To add an API (Kafka: ApiKeys, KafkaApis), add a row to its handler file and add that file to the
list here. The API's key and schemas are in `wire/messages/apis.py`. CONTRIBUTING.md has all steps,
also for a new version of an API.
"""

import logging

from ...wire.messages import control
from ...wire.messages.apis import API_NAMES
from ..listener.dispatch import Api
from .fetch import fetch, offsets, record_deletion
from .groups import admin as group_admin
from .groups import (
    committed_offsets,
    consumer_members,
    coordinators,
    members,
    offset_commits,
    plain_commits,
)
from .metadata import (
    acls,
    cluster,
    configs,
    features,
    fixed_facts,
    metadata,
    quotas,
    replicas,
    topic_partitions,
    topics,
)
from .metadata.auto_creation import AutoCreation
from .produce import produce
from .security import logins, scram_credentials
from .transactions import admin as transaction_admin
from .transactions import markers, producers

FIRST_CONTACT = (18, 3)  # ApiVersions and Metadata, with which every client begins


def control_plane_apis(log: logging.Logger) -> tuple[Api, ...]:
    """Return the rows of all APIs except Produce and the APIs in `fetch/`."""
    creation = AutoCreation(log)
    return (
        *cluster.apis(),
        *acls.apis(),
        *quotas.apis(),
        *metadata.apis(creation),
        *topic_partitions.apis(),
        *topics.apis(),
        *configs.apis(),
        *replicas.apis(),
        *features.apis(),
        *fixed_facts.apis(),
        *producers.apis(),
        *transaction_admin.apis(),
        *markers.apis(),
        *coordinators.apis(creation),
        *plain_commits.apis(),
        *offset_commits.apis(),
        *committed_offsets.apis(),
        *members.apis(),
        *consumer_members.apis(),
        *group_admin.apis(),
        *logins.apis(),
        *scram_credentials.apis(),
    )


def served_apis(log: logging.Logger) -> tuple[Api, ...]:
    """Return the whole table, with one row for each API and the rights that the API requires."""
    table = (
        *produce.apis(),
        *fetch.apis(),
        *offsets.apis(),
        *record_deletion.apis(),
        *control_plane_apis(log),
    )
    keys = [api.key for api in table]
    assert len(set(keys)) == len(keys), "an API is served by one handler"
    silent = [API_NAMES[api.key] for api in table if api.rights is None]
    assert not silent, f"these APIs do not say which rights they need: {silent}"
    return table


def prepare_codecs() -> None:
    """Create the codecs of every client's first requests.

    The broker calls this function in a thread while it starts.
    A codec is created at its first use, on the event loop. The first codec also loads the schema
    library, which on a busy machine takes long enough to miss a heartbeat.
    """
    for api in control_plane_apis(logging.getLogger(__name__)):
        if api.key in FIRST_CONTACT:
            for version in range(api.min_version, api.max_version + 1):
                control.prepare(api.key, version)
