"""Commands about topics and their configuration.

Names may be patterns. A name with a character that no topic may have is a regular expression, which
must match whole names, as in kafka-topics. Arguments with = are configurations.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import say, show, show_one, tell
from ..wire.errors import KafkaError
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

if TYPE_CHECKING:
    from ..client.blocking import BlockingAdmin

TOPIC_COLUMNS = headings("topic", "partitions", "replicas", "out of sync", "leaderless")
PARTITION_COLUMNS = headings(
    "topic",
    "partition",
    "leader",
    "leader_epoch",
    "replicas",
    "isr",
    "start",
    "end",
    leader_epoch="EPOCH",
)


LITERAL = re.compile(r"[A-Za-z0-9._-]+")
Rf = Annotated[
    int,
    Parameter(
        name=["--rf", "--replication-factor"],
        help="The number of replicas. -1 means the broker's default.replication.factor.",
    ),
]
DryRun = Annotated[
    bool, Parameter(help="Print what would be done, and change nothing.", negative=())
]
NamesAndConfigs = Annotated[
    str,
    Parameter(help="The names of topics, and settings as KEY=VALUE. +KEY=VALUE adds to a list."),
]
Names = Annotated[str, Parameter(help="The names of topics, or patterns such as 'orders-.*'.")]


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    about = "Create, list, describe, alter or delete topics."
    add_family(app, "topic", about, create, describe, alter, delete, list=list_topics)


def create(
    *words: NamesAndConfigs,
    partitions: Annotated[
        int, Parameter(help="The number of partitions. -1 means the broker's num.partitions.")
    ] = -1,
    rf: Rf = -1,
    config: Pairs = None,
    dry_run: DryRun = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Create topics."""
    names, configs, appended = split_words(words)
    if not names or appended:
        raise Failure(
            "Which topic? oncelog topic create NAME ... [KEY=VALUE ...]"
            if not names
            else "+KEY=VALUE adds to what a topic has; a new one has nothing yet: KEY=VALUE.",
            exit_code=2,
        )
    problems = list[str]()
    with cluster.admin() as admin:
        for name in names:
            try:
                admin.create_topic(
                    name,
                    partitions=partitions,
                    replication_factor=rf,
                    configs={**pairs(config), **configs},
                    validate_only=dry_run,
                )
                say(f"{'would create' if dry_run else 'created'} topic {name}")
            except KafkaError as problem:
                problems.append(f"{name}: {problem}" if len(names) > 1 else str(problem))
    if problems:
        raise Failure("\n".join(problems))


def list_topics(
    *,
    internal: Annotated[bool, Parameter(help="Also list internal topics.", negative=())] = False,
    query: Query = QUERY,
) -> None:
    """List the topics with partitions, replicas, and the number of partitions with problems."""
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


def describe(*names: Names, query: Query = QUERY) -> None:
    """Describe the partitions of topics, and the settings that are not defaults."""
    if not names:
        raise Failure("Which topic? oncelog topic describe NAME ...", exit_code=2)
    with query.admin() as admin:
        chosen = matching(admin, names)
        partitions = admin.describe_topics(chosen)
        led = [(p.topic, p.partition) for p in partitions if p.leader >= 0]
        starts, ends = (admin.list_offsets(dict.fromkeys(led, at)) for at in (EARLIEST, LATEST))
        configs = {name: admin.describe_configs(name) for name in chosen}
    rows = [
        {
            "topic": p.topic,
            "partition": p.partition,
            "leader": p.leader if p.leader >= 0 else "none",
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "start": starts.get((p.topic, p.partition)),
            "end": ends.get((p.topic, p.partition)),
        }
        for p in partitions
    ]
    changed = {
        name: {c.name: c.value for c in configs[name] if c.source != "default"} for name in chosen
    }
    if query.format == "json":
        found = [
            {
                "topic": name,
                "partitions": [row for row in rows if row["topic"] == name],
                "configs": changed[name],
            }
            for name in chosen
        ]
        if list(names) == chosen and len(chosen) == 1:
            show_one(found[0], query.format)
        else:
            show(found, query.format)
        return
    show(rows, query.format, columns=PARTITION_COLUMNS, optional=("leader_epoch", "replicas"))
    for name, values in changed.items():
        for key, value in values.items():
            tell(f"{name}: {key}={value}" if len(chosen) > 1 else f"{key}={value}")


def alter(
    *words: NamesAndConfigs,
    partitions: Annotated[
        int | None,
        Parameter(help="The new number of partitions, which must be larger than before."),
    ] = None,
    config: Pairs = None,
    unset: Annotated[
        list[str] | None, Parameter(help="Reset these keys to their defaults.", negative=())
    ] = None,
    dry_run: DryRun = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Add partitions to topics, or change their configuration."""
    names, given, appended = split_words(words)
    if not names:
        raise Failure("Which topic? oncelog topic alter NAME ... KEY=VALUE ...", exit_code=2)
    changes: dict[str, str | None] = {**pairs(config), **given, **dict.fromkeys(unset or ())}
    if not changes and not appended and partitions is None:
        raise Failure(
            "Nothing to change: give KEY=VALUE, +KEY=VALUE, --partitions or --unset.", exit_code=2
        )
    with cluster.admin() as admin:
        for name in matching(admin, names):
            if partitions is not None:
                admin.create_partitions(name, partitions, validate_only=dry_run)
            if changes or appended:
                admin.alter_configs(name, changes, appended=appended, validate_only=dry_run)
            say(f"{'would alter' if dry_run else 'altered'} topic {name}")


def delete(
    *names: Names,
    dry_run: DryRun = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Delete topics and their data. The exit code is 1 if a topic was not deleted."""
    if not names:
        raise Failure("Which topic? oncelog topic delete NAME ...", exit_code=2)
    with cluster.admin() as admin:
        chosen = matching(admin, names)
        if dry_run:
            say(f"would delete {', '.join(chosen)}")
            return 0
        outcomes = admin.delete_topics_each(chosen)
    for name, problem in outcomes.items():
        say(f"deleted {name}" if problem is None else f"not deleted: {name}. {problem}")
    return int(any(outcomes.values()))


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return the topic names, KEY=VALUE configs and +KEY=VALUE configs among arguments.

    A + appends the value to the config's list.
    """
    names = list(dict.fromkeys(word for word in words if "=" not in word))
    given = [word for word in words if "=" in word and not word.startswith("+")]
    added = [word[1:] for word in words if "=" in word and word.startswith("+")]
    return names, pairs(given), pairs(added)


def matching(admin: "BlockingAdmin", names: Sequence[str]) -> list[str]:
    """Return the names, with each pattern replaced by the topics that match.

    Topics whose names begin with __ match only a pattern that also begins with __. Raises Failure
    for a pattern without a matching topic. A name without a pattern may be of no existing topic.
    """
    if all(LITERAL.fullmatch(name) for name in names):
        return list(dict.fromkeys(names))
    return chosen_topics(names, sorted({p.topic for p in admin.describe_topics()}))


def chosen_topics(names: Iterable[str], there: Sequence[str]) -> list[str]:
    """Return the names, with each pattern replaced by the topics of `there` that match."""
    chosen: list[str] = []
    for name in names:
        if LITERAL.fullmatch(name):
            chosen.append(name)
            continue
        try:
            pattern = re.compile(name)
        except re.error as problem:
            raise Failure(
                f"{name!r} is neither a topic's name nor a pattern ({problem}). Write for "
                "instance 'orders-.*'.",
                exit_code=2,
            ) from None
        found = [
            each
            for each in there
            if pattern.fullmatch(each) and (name.startswith("__") or not each.startswith("__"))
        ]
        if not found:
            raise Failure(f"No topic matches {name!r}; oncelog topic list shows all.")
        chosen += found
    return list(dict.fromkeys(chosen))


async def _internal_topics(admin: Any) -> set[str]:
    return set(admin.view.snapshot.internal_topics)
