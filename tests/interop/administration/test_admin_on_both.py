"""Test every method of Java's Admin once, on three nodes of oncelog and of Apache Kafka 4.4."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ...programs import run_to_end
from ..kafka_peer import KafkaPeer, java_source
from .clusters import SETTINGS
from .meant_outcomes import CALLS, SAME_CALLS, reason

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.soak]  # minutes
SOURCE = Path(__file__).parents[1] / "java" / "AdminCalls.java"
STOPPED = 3
_OF_A_CLUSTER = re.compile(r"[\w-]{22}|(?:broker|controller) \d")


class Call(NamedTuple):
    """The result of a call, either OK and a value, or the class and message of an exception."""

    outcome: str
    message: str


def calls(bootstrap: str) -> dict[str, Call]:
    """Call every method of Java's Admin while node 3 is stopped, and return the results by name."""
    done = run_to_end(java_source(SOURCE, bootstrap, str(STOPPED)), 300)
    assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
    lines = (line.split("\t") for line in done.stdout.splitlines())
    return {name: Call(outcome, message) for name, outcome, message in lines}


def is_alike(theirs: Call, ours: Call) -> bool:
    """Return whether both outcomes are equal, and oncelog's message begins with Kafka's."""
    said, by_kafka = (_OF_A_CLUSTER.sub("ID", each.message) for each in (ours, theirs))
    return theirs.outcome == ours.outcome and said.startswith(by_kafka)


def test_java_admin_calls_have_the_same_outcomes_as_on_apache_kafka(tmp_path: Path) -> None:
    with KafkaPeer(tmp_path / "kafka", 3, voters=1, settings=SETTINGS) as peer:
        peer.stop(STOPPED)
        theirs = calls(peer.bootstrap)
    with Cluster(nodes=3, data=tmp_path / "oncelog", config=SETTINGS) as cluster:
        cluster.stop(STOPPED)
        ours = calls(cluster.bootstrap)
    assert theirs.keys() == ours.keys() and len(theirs) > 160
    assert ours["methods not called"].outcome == "OK []"
    differing = {
        name: (theirs[name], ours[name])
        for name in theirs
        if not is_alike(theirs[name], ours[name])
    }
    meant = {name for name in theirs if reason(name, CALLS) and name not in SAME_CALLS}
    assert {name: both for name, both in differing.items() if name not in meant} == {}
    assert meant == differing.keys(), "what is the same needs no reason"
