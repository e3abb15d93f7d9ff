"""Java's KafkaConsumer with group.protocol=consumer (KIP-848), on three nodes.

The program is `java/ConsumerProtocol.java`. Under the mark `soak` it runs on Apache Kafka too,
which shows that it is not the program that is wrong.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import printed_by
from .kafka_peer import KafkaPeer, java_source
from .test_consumer_protocol import SETTINGS

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
PROGRAM = Path(__file__).with_name("java") / "ConsumerProtocol.java"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=["oncelog", pytest.param("kafka", marks=pytest.mark.soak)])
def bootstrap(request, tmp_path_factory) -> Iterator[str]:
    if request.param == "oncelog":
        yield request.getfixturevalue("cluster").bootstrap
        return
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as kafka:
        yield kafka.bootstrap


@pytest.mark.parametrize("what", ["come-and-go", "pattern", "static", "copy"])
def test_program_of_the_consumer_protocol_ends_well(bootstrap, what):
    printed = printed_by(java_source(PROGRAM, bootstrap, f"java-{what}", what))
    assert printed.splitlines()[-1] == "OK", printed


def test_copy_outlives_its_coordinator(cluster):
    """Each record once, though the group's coordinator is killed while members come and go."""
    name, lines, killed = "java-copy-of-a-killed", [], None
    command = java_source(PROGRAM, cluster.bootstrap, name, "copy")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            for line in program.stdout:  # it ends by itself: whatever it waits for has a limit
                lines.append(line)
                if line.startswith("copied") and killed is None:
                    killed = cluster.kill(f"group:{name}-group")
                    cluster.start(killed)
        finally:
            program.kill()
    assert killed is not None
    assert lines[-1] == "OK\n", "".join(lines)
