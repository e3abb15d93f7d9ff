"""Three thousand partitions: made by one request, deleted by one request."""

from oncelog.wire.errors import KafkaError, UnknownTopicOrPartition

from .stage import Stage


def create(stage: Stage) -> None:
    count = stage.size(3_000, 1_500)
    with stage.watched(f"{count:,} partitions created by one request"):
        stage.create("wide", count)


def delete(stage: Stage) -> None:
    count = stage.size(3_000, 1_500)
    if not _exists(stage, "wide"):
        stage.create("wide", count)
    with stage.watched(f"{count:,} partitions deleted by one request"):
        stage.cluster.ask(lambda admin: admin.delete_topics(["wide"]))
        stage.wait("the topic is gone", lambda: not _exists(stage, "wide"))
        directories = [stage.cluster.node(i).directory for i in stage.cluster.node_ids]
        stage.wait(
            "its directories are gone",
            lambda: not any(next(d.glob("wide*"), None) for d in directories),
        )


def _exists(stage: Stage, topic: str) -> bool:
    try:
        return bool(stage.cluster.ask(lambda admin: admin.describe_topics([topic])))
    except UnknownTopicOrPartition:
        return False
    except KafkaError:  # not now
        return True
