"""A case with 3,000 partitions, created by one request and deleted by one request."""

from oncelog.wire.errors import KafkaError, UnknownTopicOrPartition

from .stage import Stage

UPKEEP_S = 17  # checkpoints and the cleaner run once, and look at each log


def create(stage: Stage) -> None:
    count = stage.size(3_000, 1_000)
    with stage.watched(
        f"{count:,} partitions created by one request", settle_s=stage.size(UPKEEP_S, 0)
    ):
        stage.create("wide", count)
        stage.wait(
            "all replicas are there", lambda: _count(stage, "wide-*") == 3 * count, every_s=0.5
        )


def delete(stage: Stage) -> None:
    count = stage.size(3_000, 1_000)
    if not _exists(stage, "wide"):
        stage.create("wide", count)
    with stage.watched(
        f"{count:,} partitions deleted by one request", settle_s=stage.size(UPKEEP_S, 0)
    ):
        stage.cluster.ask(lambda admin: admin.delete_topics(["wide"]))
        stage.wait("the topic is gone", lambda: not _exists(stage, "wide"))
        left = "wide-*[0-9]" if stage.is_short else "wide-*"  # those that wait for removal, too
        stage.wait("its directories are gone", lambda: not _count(stage, left), every_s=0.5)


def _count(stage: Stage, pattern: str) -> int:
    nodes = [stage.cluster.node(i).directory for i in stage.cluster.node_ids]
    return sum(1 for node in nodes for _ in node.glob(pattern))


def _exists(stage: Stage, topic: str) -> bool:
    try:
        return bool(stage.cluster.ask(lambda admin: admin.describe_topics([topic])))
    except UnknownTopicOrPartition:
        return False
    except KafkaError:  # not now
        return True
