"""Commands about consumer groups and their committed offsets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import say, show, show_one, tell
from ..wire.identifiers import TopicPartition
from .common import (
    DEFAULT_CLUSTER,
    EARLIEST,
    LATEST,
    QUERY,
    ClusterOptions,
    Query,
    add_family,
    headings,
    say_missing,
)
from .records.places import TIMES, time_ms

if TYPE_CHECKING:
    from ..client.blocking import BlockingAdmin
    from ..client.groups.descriptions import GroupDescription, MemberDescription

NO_MEMBERS = ("Empty", "Dead")
GROUP_COLUMNS = headings("group", "state", "type", "protocol", "coordinator")
MEMBER_COLUMNS = headings("member", "instance", "epoch", "partitions", "target", "host")
GROUP_OPTIONAL = ("protocol",)
MEMBER_OPTIONAL = ("host", "instance")
PARTITIONS_NAMED_MAX = 6
OFFSET_COLUMNS = headings("topic", "partition", "committed", "end", "lag", "member", "host")
RESET_COLUMNS = headings("topic", "partition", "from", "to")


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    about = "List, describe, reset or delete consumer groups."
    add_family(app, "group", about, describe, reset, delete, list=list_groups)


def list_groups(
    *,
    query: Query = QUERY,
) -> int:
    """List the groups with state, type (classic, consumer, ...), and the node that coordinates
    them.

    The exit code is 1 if a node does not answer.
    """
    with query.admin() as admin:
        found = admin.groups.list_groups(needs_all_brokers=False)
    rows = [
        {
            "group": group.group_id,
            "state": group.state,
            "type": group.type or None,
            "protocol": group.protocol_type or None,
            "coordinator": group.coordinator,
        }
        for group in found
    ]
    show(rows, query.format, columns=GROUP_COLUMNS, optional=GROUP_OPTIONAL)
    return say_missing(found.errors, "groups")


def describe(
    name: str,
    /,
    *,
    query: Query = QUERY,
) -> None:
    """Show a group's members, their partitions, the committed offsets and the lag."""
    with query.admin() as admin:
        group = admin.groups.describe(name)
        committed = {key: value.offset for key, value in admin.groups.committed(name).items()}
        readers = {where: member for member in group.members for where in member.partitions}
        wanted = sorted({*committed, *readers})
        ends = _offsets(admin, wanted, LATEST)
    rows: list[dict[str, Any]] = []
    for where in wanted:
        offset, end, reader = committed.get(where), ends.get(where), readers.get(where)
        rows.append(
            {
                "topic": where[0],
                "partition": where[1],
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": reader.member_id if reader else None,
                "host": reader.host if reader else None,
            }
        )
    summary: dict[str, Any] = {
        "group": name,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol or None,
        "coordinator": group.coordinator,
        "members": len(group.members) if group.is_known else None,
    }
    if group.epoch is not None:
        summary |= {"epoch": group.epoch, "target epoch": group.target_epoch}
    idle = [m for m in group.members if not m.partitions]
    if query.format == "json":
        names = [member.member_id for member in idle]
        who = [_member_row(member) for member in group.members]
        listed = {"idle members": names, "offsets": rows, "who": who}
        show_one({**summary, **listed}, query.format)
        return
    tell("  ".join(f"{key} {value}" for key, value in summary.items() if value is not None))
    show(rows, query.format, columns=OFFSET_COLUMNS, optional=("host", "member"))
    if group.epoch is not None and group.members:
        tell("")
        _show_members(group)
        return
    for member in idle:
        tell(f"{member.member_id} at {member.host} has no partition")


def _member_row(member: "MemberDescription") -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "type": member.type,
        "host": member.host,
        "epoch": member.epoch,
        "partitions": [f"{topic}/{index}" for topic, index in member.partitions],
        "target": member.target and [f"{topic}/{index}" for topic, index in member.target],
    }


def _show_members(group: "GroupDescription") -> None:
    """Print the members of a consumer group.

    For each member, also print the partitions that it has yet to revoke, and those that it waits
    for.
    """
    rows = [
        {
            "member": member.member_id,
            "instance": member.instance_id,
            "epoch": member.epoch,
            "partitions": len(member.partitions),
            "target": len(member.target or ()),
            "host": member.host,
        }
        for member in group.members
    ]
    columns = MEMBER_COLUMNS
    if not any(member.instance_id for member in group.members):
        columns = {key: head for key, head in columns.items() if key != "instance"}
    show(rows, "table", columns=columns, optional=MEMBER_OPTIONAL)
    for member in group.members:
        if member.epoch is not None and member.epoch < 0:
            tell(f"{member.member_id} is away, and keeps its target while its session lasts")
            continue
        if member.type != group.type:
            tell(f"{member.member_id} speaks the {member.type} protocol")
        if member.gives_up:
            tell(f"{member.member_id} has yet to give up {_named(member.gives_up)}")
        if member.waits_for:
            tell(f"{member.member_id} waits for {_named(member.waits_for)}")


def _named(partitions: Sequence[TopicPartition]) -> str:
    first = [f"{topic}/{index}" for topic, index in partitions[:PARTITIONS_NAMED_MAX]]
    more = len(partitions) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def reset(
    name: str,
    /,
    *,
    topic: Annotated[
        list[str] | None,
        Parameter(
            help="Move only the offsets of TOPIC or TOPIC/PARTITION. The option may be repeated.",
            negative=(),
        ),
    ] = None,
    to: Annotated[
        str | None,
        Parameter(help="Move to earliest, latest, an offset, or a time (2026-01-31T12:00)."),
    ] = None,
    by: Annotated[
        int | None, Parameter(help="Move by this number of offsets. A negative number moves back.")
    ] = None,
    execute: Annotated[
        bool,
        Parameter(
            help="Apply the new offsets. Without this option they are only printed.", negative=()
        ),
    ] = False,
    query: Query = QUERY,
) -> None:
    """Print new committed offsets of a group without members, and apply them with --execute."""
    if (to is None) == (by is None):
        raise Failure("Where to? Give either --to or --by.", exit_code=2)
    asked = None if to is None else target(to)
    with query.admin() as admin:
        before = {key: value.offset for key, value in admin.groups.committed(name).items()}
        wanted = _partitions(admin, topic, before)
        if not wanted:
            raise Failure(f"Group {name} has committed nothing; name a topic with --topic.")
        starts, ends = (_offsets(admin, wanted, at) for at in (EARLIEST, LATEST))
        found = _offsets(admin, wanted, asked[1]) if asked and asked[0] == "time" else {}
        after = {
            where: destination(
                asked,
                by,
                before=before.get(where),
                at_time=found.get(where),
                bounds=(starts[where], ends[where]),
            )
            for where in wanted
            if where in ends
        }
        if execute:
            _refuse_members(admin, name)
            admin.groups.commit(name, after)
    rows = [
        {"topic": where[0], "partition": where[1], "from": before.get(where), "to": offset}
        for where, offset in after.items()
    ]
    show(rows, query.format, columns=RESET_COLUMNS)
    done = f"reset {len(after)} offsets of group {name}"
    say(done if execute else "nothing is changed yet; do it with --execute")


def delete(
    *names: str,
    topic: Annotated[
        list[str] | None,
        Parameter(help="Delete only the offsets of TOPIC or TOPIC/PARTITION.", negative=()),
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Delete groups that have no members, or only their offsets of some topics."""
    if not names:
        raise Failure("Which group? oncelog group delete NAME ...", exit_code=2)
    with cluster.admin() as admin:
        for name in names:
            if topic:
                known = admin.groups.committed(name)
                wanted = [where for where in _partitions(admin, topic, known) if where in known]
                admin.groups.delete_offsets(name, wanted)
                say(f"deleted {len(wanted)} offsets of group {name}")
            else:
                _refuse_members(admin, name)
                admin.groups.delete(name)
                say(f"deleted group {name}")


def target(text: str) -> tuple[str, int]:
    """Parse --to into ("offset", number) or ("time", ms). earliest and latest are times below 0."""
    if text in ("earliest", "latest"):
        return "time", EARLIEST if text == "earliest" else LATEST
    if text.isdecimal():
        return "offset", int(text)
    if (found := time_ms(text)) is None:
        raise Failure(
            f"{text!r} is neither earliest, nor latest, nor an offset, nor {TIMES}.", exit_code=2
        )
    return "time", found


def destination(
    asked: tuple[str, int] | None,
    by: int | None,
    *,
    before: int | None,
    at_time: int | None,
    bounds: tuple[int, int],
) -> int:
    """Return a partition's new committed offset, limited to the range of its log.

    asked: the parsed option --to. by: the number of offsets to add to `before`, the committed
    offset. at_time: the first offset at or after the requested time, negative if there is no such
    record. bounds: the start and end offset of the log.
    """
    start, end = bounds
    if by is not None:
        offset = (start if before is None else before) + by
    elif asked is not None and asked[0] == "offset":
        offset = asked[1]
    else:
        offset = end if at_time is None or at_time < 0 else at_time
    return min(max(offset, start), end)


def _offsets(
    admin: "BlockingAdmin", wanted: list[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the offset at a timestamp of each wanted partition that has a leader."""
    led = {(p.topic, p.partition) for p in admin.describe_topics() if p.leader >= 0}
    return admin.list_offsets({where: timestamp for where in wanted if where in led})


def _partitions(
    admin: "BlockingAdmin", named: list[str] | None, committed: Mapping[TopicPartition, Any]
) -> list[TopicPartition]:
    """Return the partitions of the TOPIC and TOPIC/PARTITION texts in `named`.

    Without such texts, return all partitions with a committed offset. Raises Failure for a topic or
    partition that does not exist.
    """
    if not named:
        return sorted(committed)
    found: set[TopicPartition] = set()
    known = {(p.topic, p.partition) for p in admin.describe_topics()}
    for text in named:
        topic, _, partition = text.partition("/")
        matching = {
            where for where in known if where[0] == topic and partition in ("", str(where[1]))
        }
        if not matching:
            raise Failure(f"There is no {text}.")
        found |= matching
    return sorted(found)


def _refuse_members(admin: "BlockingAdmin", name: str) -> None:
    from ..wire.errors import GroupIdNotFound

    try:
        group = admin.groups.describe(name)
    except GroupIdNotFound:
        return  # a first commit makes it
    if group.state not in NO_MEMBERS:
        members = f"{len(group.members)} members" if group.is_known else f"type {group.type}"
        raise Failure(f"Group {name} is {group.state} with {members}: stop them first.")
