"""Test Kafka's command-line tools on three nodes of oncelog and of Apache Kafka 4.4."""

from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..kafka_peer import KafkaPeer
from .clusters import ALL_SETTINGS
from .meant_outcomes import COMMANDS, LINES, meant_lines, reason
from .play_tools import Played, play

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.soak]  # minutes


def differences(theirs: Played, ours: Played) -> list[str]:
    """Return the output lines and exit codes that only Kafka or only oncelog has.

    A line of oncelog equals a line of Kafka if it begins with Kafka's whole line.
    """
    found = [] if theirs.code == ours.code else [f"code {theirs.code}, ours {ours.code}"]
    found += [
        f"Kafka: {line}"
        for line in sorted(theirs.lines)
        if not any(each.startswith(line) for each in ours.lines)
    ]
    found += [
        f"ours: {line}"
        for line in sorted(ours.lines)
        if not any(line.startswith(each) for each in theirs.lines)
    ]
    return found


def test_kafka_command_line_tools_exit_and_print_as_on_apache_kafka(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("for-kafka", "for-ours")]
    for folder in folders:
        folder.mkdir()
    settings = ALL_SETTINGS
    with KafkaPeer(tmp_path / "kafka", 3, voters=1, settings=settings) as peer:
        theirs = play(peer.bootstrap, folders[0])
    with Cluster(nodes=3, data=tmp_path / "oncelog", config=settings) as cluster:
        ours = play(cluster.bootstrap, folders[1])
    assert theirs.keys() == ours.keys() and len(theirs) > 180
    found = {name: differences(theirs[name], ours[name]) for name in theirs}
    differing = {name: lines for name, lines in found.items() if lines}
    whole = {name for name in theirs if reason(name, COMMANDS)}
    unmeant = {
        name: lines
        for name, all_lines in differing.items()
        if name not in whole
        and (lines := [line for line in all_lines if not meant_lines(name, _printed(line))])
    }
    assert unmeant == {}
    used = {
        row
        for name, lines in differing.items()
        for line in lines
        for row in meant_lines(name, _printed(line))
    }
    assert whole <= differing.keys() and used == set(LINES), "what is the same needs no reason"


def _printed(difference: str) -> str:
    """Return the printed line that a difference contains."""
    return difference.partition(": ")[2]
