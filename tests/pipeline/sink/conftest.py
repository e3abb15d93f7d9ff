"""A fixture of three nodes, of oncelog or Apache Kafka, for the queries that tests kill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ...interop.client_peers import KAFKAS, OURS, PREPARES
from ...interop.kafka_peer import KafkaPeer
from .processes import KAFKA_PREPARES, Nodes


@pytest.fixture(scope="module")
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    folder: Path = tmp_path_factory.mktemp("nodes")
    name = getattr(request, "param", OURS)
    if name == OURS:
        with Cluster(nodes=3, data=folder / "data") as running:
            yield running
    else:
        kind: dict[str, Any] = {"settings": PREPARES} if name == KAFKA_PREPARES else KAFKAS[name]
        with KafkaPeer(folder, nodes=3, **kind) as peer:
            yield peer
