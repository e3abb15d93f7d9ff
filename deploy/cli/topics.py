"""Commands about topics and their configuration."""

from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..cluster.failure import Failure
from ..cluster.terminal import say, show, show_one, tell
from .common import (
    DEFAULT_CLUSTER,
    EARLIEST,
    LATEST,
    QUERY,
    ClusterOptions,
    Pairs,
    Query,
    add_family,
    headings,
    pairs,
)

TOPIC_COLUMNS = headings("topic", "partitions", "replicas", "out of sync", "leaderless")
PARTITION_COLUMNS = headings(
    "topic", "partition", "leader", "leader_epoch", "replicas", "isr", "start", "end",
    leader_epoch="EPOCH",
)  # fmt: skip


def register(app: App) -> None:
    """Add this file's commands."""
    about = "Create, list, describe, alter, delete topics."
    add_family(app, "topic", about, create, describe, alter, delete, list=list_topics)


def create(
    name: str,
    /,
    *,
    partitions: Annotated[int, Parameter(help="-1: the broker's num.partitions.")] = -1,
    rf: Annotated[int, Parameter(help="Replicas; -1: default.replication.factor.")] = -1,
    config: Pairs = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Create a topic."""
    with cluster.admin() as admin:
        admin.create_topic(
            name, partitions=partitions, replication_factor=rf, configs=pairs(config)
        )
    say(f"created topic {name}")


def list_topics(
    *,
    internal: Annotated[bool, Parameter(help="Internal topics too.", negative=())] = False,
    query: Query = QUERY,
) -> None:
    """The topics: partitions, replicas, how many partitions are not well."""
    with query.admin() as admin:
        found = admin.describe_topics()
        hidden = set[str]() if internal else admin.run(_internal_topics)
    by_topic = {name: list(group) for name, group in groupby(found, attrgetter("topic"))}
    rows = [
        {
            "topic": name,
            "partitions": len(partitions),
            "replicas": len(partitions[0].replicas),
            "out of sync": sum(len(p.isr) < len(p.replicas) for p in partitions),
            "leaderless": sum(p.leader < 0 for p in partitions),
        }
        for name, partitions in by_topic.items()
        if name not in hidden
    ]
    show(rows, query.format, columns=TOPIC_COLUMNS)


def describe(
    name: str,
    /,
    *,
    query: Query = QUERY,
) -> None:
    """A topic's partitions (leader, ISR, offsets) and the settings that are not defaults."""
    with query.admin() as admin:
        partitions = admin.describe_topics([name])
        led = [(name, p.partition) for p in partitions if p.leader >= 0]
        starts, ends = (admin.list_offsets(dict.fromkeys(led, at)) for at in (EARLIEST, LATEST))
        configs = admin.describe_configs(name)
    rows = [
        {
            "topic": p.topic,
            "partition": p.partition,
            "leader": p.leader if p.leader >= 0 else "none",
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "start": starts.get((name, p.partition)),
            "end": ends.get((name, p.partition)),
        }
        for p in partitions
    ]
    changed = {c.name: c.value for c in configs if c.source != "default"}
    if query.format == "json":
        show_one({"topic": name, "partitions": rows, "configs": changed}, query.format)
        return
    show(rows, query.format, columns=PARTITION_COLUMNS)
    for key, value in changed.items():
        tell(f"{key}={value}")


def alter(
    name: str,
    /,
    *,
    partitions: Annotated[int | None, Parameter(help="More partitions.")] = None,
    config: Pairs = None,
    unset: Annotated[list[str] | None, Parameter(help="Back to default.", negative=())] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Add partitions, set or unset configuration values."""
    changes: dict[str, str | None] = {**pairs(config), **dict.fromkeys(unset or ())}
    if not changes and partitions is None:
        raise Failure("Nothing to change: give --partitions, --config or --unset.", exit_code=2)
    with cluster.admin() as admin:
        if partitions is not None:
            admin.create_partitions(name, partitions)
        if changes:
            admin.alter_configs(name, changes)
    say(f"altered topic {name}")


def delete(
    *names: str,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete topics and their data."""
    if not names:
        raise Failure("Which topic? oncelog topic delete NAME ...", exit_code=2)
    with cluster.admin() as admin:
        admin.delete_topics(names)
    say(f"deleted {', '.join(names)}")


async def _internal_topics(admin: Any) -> set[str]:
    return set(admin.view.snapshot.internal_topics)
