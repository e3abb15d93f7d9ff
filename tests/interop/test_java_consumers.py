"""Java's KafkaConsumer with group.protocol=consumer (KIP-848), on three nodes.

The program is `java/ConsumerProtocol.java`. Under the mark `soak` it runs on Apache Kafka too,
which shows that it is not the program that is wrong.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import printed_by
from .kafka_peer import KafkaPeer, java_source
from .test_consumer_protocol import SETTINGS

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
PROGRAM = Path(__file__).with_name("java") / "ConsumerProtocol.java"


@pytest.fixture(scope="module", params=["oncelog", pytest.param("kafka", marks=pytest.mark.soak)])
def bootstrap(request, tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with KafkaPeer(folder, settings=SETTINGS) as kafka:
            yield kafka.bootstrap
        return
    with Cluster(nodes=3, data=folder / "cluster", config=SETTINGS) as cluster:
        yield cluster.bootstrap


@pytest.mark.parametrize("what", ["come-and-go", "pattern", "static", "copy"])
def test_program_of_the_consumer_protocol_ends_well(bootstrap, what):
    printed = printed_by(java_source(PROGRAM, bootstrap, f"java-{what}", what))
    assert printed.splitlines()[-1] == "OK", printed
