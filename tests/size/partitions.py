"""Three thousand partitions: made by one request, deleted by one request."""

import contextlib
import time
from functools import partial

from oncelog.wire.errors import KafkaError, UnknownTopicOrPartition

from .connection import LIST_OFFSETS, Connection
from .stage import Stage


def create(stage: Stage) -> None:
    count = stage.size(3_000, 1_000)
    with stage.watched(f"{count:,} partitions created by one request"):
        began = time.monotonic()
        stage.create("wide", count)
        created_s = time.monotonic() - began
        for node_id, partitions in stage.leaders("wide").items():
            serves = partial(_serve, stage, node_id, "wide", partitions)
            stage.wait("all partitions serve", serves, every_s=0.5)
        stage.wait(
            "all replicas are there", lambda: _count(stage, "wide-*") == 3 * count, every_s=0.5
        )
    stage.note(f"decided after {created_s:.1f} s")


def delete(stage: Stage) -> None:
    count = stage.size(3_000, 1_000)
    if not _exists(stage, "wide"):
        stage.create("wide", count)
    with stage.watched(f"{count:,} partitions deleted by one request"):
        stage.cluster.ask(lambda admin: admin.delete_topics(["wide"]))
        stage.wait("the topic is gone", lambda: not _exists(stage, "wide"))
        left = "wide-*[0-9]" if stage.is_short else "wide-*"  # those that wait for removal, too
        stage.wait("its directories are gone", lambda: not _count(stage, left), every_s=0.5)


def _count(stage: Stage, pattern: str) -> int:
    """Directories of all nodes."""
    nodes = [stage.cluster.node(i).directory for i in stage.cluster.node_ids]
    return sum(1 for node in nodes for _ in node.glob(pattern))


def _serve(stage: Stage, node_id: int, topic: str, partitions: list[int]) -> bool:
    """Whether a node answers as the leader of all of these."""
    ends = [{"partition_index": p, "timestamp": -1} for p in partitions]
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": ends}]}
    with contextlib.closing(Connection(stage.address(node_id))) as connection:
        answer = connection.ask(LIST_OFFSETS, 2, {**asked, "isolation_level": 0})
    return all(p.error_code == 0 for p in answer.topics[0].partitions)


def _exists(stage: Stage, topic: str) -> bool:
    try:
        return bool(stage.cluster.ask(lambda admin: admin.describe_topics([topic])))
    except UnknownTopicOrPartition:
        return False
    except KafkaError:  # not now
        return True
