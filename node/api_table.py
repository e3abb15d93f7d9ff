"""All APIs that a broker serves, in one table; ApiVersions, the tests and the docs read it.

A new API is a row in its handler file, and its file stands here.
"""

import logging
from collections.abc import Iterable

from ..wire.messages import control
from .dispatch import Api
from .handlers import (
    cluster,
    configs,
    coordinators,
    group_admin,
    group_offsets,
    groups,
    markers,
    metadata,
    offset_commits,
    replicas,
    topic_partitions,
    topics,
    transaction_admin,
    transactions,
)
from .handlers.auto_creation import AutoCreation

FIRST_CONTACT = (18, 3)  # ApiVersions and Metadata: every client begins with them


def control_plane_apis(log: logging.Logger) -> tuple[Api, ...]:
    """Everything but the log itself (produce, fetch and their kin: see handlers/log.py)."""
    creation = AutoCreation(log)
    return (
        *cluster.apis(),
        *metadata.apis(creation),
        *topic_partitions.apis(),
        *topics.apis(),
        *configs.apis(),
        *replicas.apis(),
        *transactions.apis(),
        *transaction_admin.apis(),
        *markers.apis(),
        *coordinators.apis(creation),
        *offset_commits.apis(),
        *group_offsets.apis(),
        *groups.apis(),
        *group_admin.apis(),
    )


def served_apis(log: logging.Logger, log_apis: Iterable[Api]) -> tuple[Api, ...]:
    """The whole table; log_apis are the rows of handlers/log.py. Each API stands in it once."""
    table = (*log_apis, *control_plane_apis(log))
    keys = [api.key for api in table]
    assert len(set(keys)) == len(keys), "an API is served by one handler"
    return table


def prepare_codecs() -> None:
    """Make the codecs that every client begins with; in a thread, while the broker starts.

    All are made when they are first used, on the event loop; but the very first of them loads the
    schema library: long enough, on a busy machine, to miss a heartbeat.
    """
    for api in control_plane_apis(logging.getLogger(__name__)):
        if api.key in FIRST_CONTACT:
            for version in range(api.min_version, api.max_version + 1):
                control.prepare(api.key, version)
