"""Commands about topics and their configuration."""

from typing import Annotated, Any

from cyclopts import App, Parameter

from ..cluster.failure import Failure
from ..cluster.lookup import admin_of
from ..cluster.terminal import say, show
from .common import DEFAULT_DATA, Bootstrap, CommandConfig, Data, Format, Pairs, pairs

PARTITION_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "leader": "LEADER",
    "leader_epoch": "EPOCH",
    "replicas": "REPLICAS",
    "isr": "ISR",
    "start": "START",
    "end": "END",
}


def register(app: App) -> None:
    """Add this file's commands."""
    topic = App(name="topic", help="Create, list, describe, alter, delete topics.")
    topic.command(create)
    topic.command(list_topics, name="list")
    topic.command(describe)
    topic.command(alter)
    topic.command(delete)
    app.command(topic)


def create(
    name: str,
    /,
    *,
    partitions: Annotated[int, Parameter(help="-1: the broker's num.partitions.")] = -1,
    rf: Annotated[int, Parameter(help="Replicas; -1: default.replication.factor.")] = -1,
    config: Pairs = None,
    data: Data = DEFAULT_DATA,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Create a topic."""
    with admin_of(data, bootstrap, command_config) as admin:
        admin.run(
            lambda a: a.create_topic(
                name, partitions=partitions, replication_factor=rf, configs=pairs(config)
            )
        )
    say(f"created topic {name}")


def list_topics(
    *,
    internal: Annotated[bool, Parameter(help="Internal topics too.", negative=())] = False,
    data: Data = DEFAULT_DATA,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    format: Format = "table",
) -> None:
    """The topics: partitions, replicas, how many partitions are not well."""
    with admin_of(data, bootstrap, command_config) as admin:
        found = admin.run(lambda a: a.describe_topics())
        hidden = set[str]() if internal else admin.run(_internal_topics)
    by_topic: dict[str, list[Any]] = {}
    for p in found:
        by_topic.setdefault(p.topic, []).append(p)
    rows = [
        {
            "topic": name,
            "partitions": len(partitions),
            "replicas": len(partitions[0].replicas),
            "out of sync": sum(len(p.isr) < len(p.replicas) for p in partitions),
            "leaderless": sum(p.leader < 0 for p in partitions),
        }
        for name, partitions in sorted(by_topic.items())
        if name not in hidden
    ]
    columns = ("topic", "partitions", "replicas", "out of sync", "leaderless")
    show(rows, format, columns={c: c.upper() for c in columns})


def describe(
    name: str,
    /,
    *,
    data: Data = DEFAULT_DATA,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    format: Format = "table",
) -> None:
    """A topic's partitions (leader, ISR, offsets) and the settings that are not defaults."""
    with admin_of(data, bootstrap, command_config) as admin:
        partitions = admin.run(lambda a: a.describe_topics([name]))
        led = [p for p in partitions if p.leader >= 0]
        starts = admin.run(lambda a: a.list_offsets({(name, p.partition): -2 for p in led}))
        ends = admin.run(lambda a: a.list_offsets({(name, p.partition): -1 for p in led}))
        configs = admin.run(lambda a: a.describe_configs(name))
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
    if format == "json":
        import json

        print(json.dumps({"topic": name, "partitions": rows, "configs": changed}))
        return
    show(rows, format, columns=PARTITION_COLUMNS)
    for key, value in changed.items():
        print(f"{key}={value}")


def alter(
    name: str,
    /,
    *,
    partitions: Annotated[int | None, Parameter(help="More partitions.")] = None,
    config: Pairs = None,
    unset: Annotated[list[str] | None, Parameter(help="Back to default.", negative=())] = None,
    data: Data = DEFAULT_DATA,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Add partitions, set or unset configuration values."""
    changes: dict[str, str | None] = {**pairs(config), **dict.fromkeys(unset or ())}
    if not changes and partitions is None:
        raise Failure("Nothing to change: give --partitions, --config or --unset.", exit_code=2)
    with admin_of(data, bootstrap, command_config) as admin:
        if partitions is not None:
            admin.run(lambda a: a.create_partitions(name, partitions))
        if changes:
            admin.run(lambda a: a.alter_configs(name, changes))
    say(f"altered topic {name}")


def delete(
    *names: str,
    data: Data = DEFAULT_DATA,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete topics and their data."""
    if not names:
        raise Failure("Which topic? oncelog topic delete NAME ...", exit_code=2)
    with admin_of(data, bootstrap, command_config) as admin:
        admin.run(lambda a: a.delete_topics(names))
    say(f"deleted {', '.join(names)}")


async def _internal_topics(admin: Any) -> set[str]:
    return set(admin.view.snapshot.internal_topics)
