"""Test Java's KafkaConsumer with group.protocol=consumer (KIP-848), on three nodes.

The program is `java/ConsumerProtocol.java`. Under the mark `soak` it also runs on Apache Kafka 4.4,
which shows that the program is correct.
"""

import subprocess
from pathlib import Path

import pytest

from ...programs import printed_by
from ..kafka_peer import java_source

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
PROGRAM = Path(__file__).parents[1] / "java" / "ConsumerProtocol.java"


@pytest.mark.parametrize("what", ["come-and-go", "pattern", "static", "copy"])
@pytest.mark.in_turn
def test_java_program_of_the_consumer_protocol_passes_all_its_checks(newer_groups, what):
    printed = printed_by(java_source(PROGRAM, newer_groups, f"java-{what}", what))
    assert printed.splitlines()[-1] == "OK", printed


@pytest.mark.in_turn
def test_exactly_once_copy_with_a_killed_group_coordinator_is_exact(newer_cluster):
    """Each record is copied once, though the coordinator is killed while members join and leave."""
    name, lines, killed = "java-copy-of-a-killed", [], None
    command = java_source(PROGRAM, newer_cluster.bootstrap, name, "copy")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            for line in program.stdout:  # all of its waits have limits
                lines.append(line)
                if line.startswith("copied") and killed is None:
                    killed = newer_cluster.kill(f"group:{name}-group")
                    newer_cluster.start(killed)
        finally:
            program.kill()
    assert killed is not None
    assert lines[-1] == "OK\n", "".join(lines)
