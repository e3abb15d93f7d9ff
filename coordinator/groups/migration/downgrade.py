"""The downgrade of a consumer group that has only members of the classic protocol left.

The group's epoch becomes the generation, and each member keeps its target assignment. Partitions of
members that left have no owner until the others rejoin, so a rebalance begins immediately. The
rebalance is in no record, but a generation without a leader makes the next coordinator begin a
rebalance again.

There is one case without a rebalance. The last member of the newer protocol is static, and comes
back with the classic protocol. That member gets its previous target, and no member must rejoin, if
all members were reconciled.
"""

from collections.abc import Collection, Iterable, Iterator

from ....wire.consumer_protocol import assignment_for
from ....wire.identifiers import TopicPartition
from ..assignors.spec import PartitionsByTopic
from ..classic_group import ClassicGroup
from ..consumer.consumer_group import ConsumerGroup
from ..consumer.known_topics import Topics
from ..consumer_protocol import CONSUMER
from ..group_member import HeldMetadata, Member, member_of, metadata_bytes
from ..group_messages import GroupSettings, JoinRequest, Protocols
from ..group_states import GroupState
from ..records import GroupValue

DOWNGRADED = "it has become a classic group again"
MEMBERS_MAX = 500  # a larger group would block the event loop for too long
ELEMENTS_MAX = 10_000  # partitions of all members, for the same reason; a topic counts as 32
TOPIC_ELEMENTS = 32
METADATA_BYTES_MAX = 256 * 1024  # a larger record might not fit into a batch


def is_due(
    group: ConsumerGroup,
    leaving: Collection[str],
    settings: GroupSettings,
    joining: JoinRequest | None = None,
) -> bool:
    """Return whether the group becomes a classic group once the members in `leaving` have left.

    joining: the JoinGroup of a static member that replaces the leaving member.
    """
    gone, comes = frozenset(leaving), joining is not None
    count = len(group.members) - len(gone) + comes
    if not settings.may_downgrade or not 0 < count <= min(MEMBERS_MAX, settings.max_size):
        return False
    said = [joining.protocols] if joining is not None else []
    for member_id, member in group.members.items():
        if member_id not in gone:
            if member.classic is None:
                return False
            said.append(member.classic.protocols)
    if not _fits(group, said):
        return False
    spoken = [{name for name, _ in protocols} for protocols in said]
    return bool(spoken[0].intersection(*spoken[1:]))


def _fits(group: ConsumerGroup, said: Iterable[Protocols]) -> bool:
    """Return whether the new classic group is small enough to be created in one step."""
    elements, size_bytes = 0, 0
    for target in group.targets.values():
        for partitions in target.values():
            elements += TOPIC_ELEMENTS + len(partitions)
            if elements > ELEMENTS_MAX:
                return False
    for protocols in said:
        for protocol in protocols:
            size_bytes += metadata_bytes((protocol,))
            if size_bytes > METADATA_BYTES_MAX:
                return False
    return True


def downgraded(
    group: ConsumerGroup,
    leaving: Collection[str],
    topics: Topics,
    wall_ms: int,
    joining: JoinRequest | None = None,
) -> tuple[ClassicGroup, GroupValue]:
    """Return the classic group, and its record.

    The group counts its members' metadata separately until it is added to the table. joining: the
    JoinGroup of a static member that replaces the leaving member, with its new id.
    """
    classic = ClassicGroup(group.group_id, HeldMetadata(), wall_ms)
    names = {topics[name].topic_id: name for name in group.named if name in topics}
    targets: dict[str, PartitionsByTopic] = {}
    for member_id, member in group.members.items():
        if member_id in leaving:
            continue
        assert member.classic is not None
        classic.add(
            Member(
                member_id=member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
            ),
            CONSUMER,
        )
        targets[member_id] = group.targets.get(member_id, {})
    if joining is not None:
        classic.add(member_of(joining, joining.member_id, is_new=False), CONSUMER)
        (before,) = leaving
        targets[joining.member_id] = group.targets.get(before, {})
    classic.generation = group.epoch
    classic.protocol_name = classic.choose_protocol()
    classic.state = GroupState.STABLE
    for member_id, member in classic.members.items():
        has = _named(targets[member_id], names)
        member.assignment = assignment_for(member.metadata(classic.protocol_name), has)
    value = classic.to_store({id_: member.assignment for id_, member in classic.members.items()})
    at_rest = group.epoch == group.target.epoch and all(
        group.is_reconciled(member_id) for member_id in group.members if member_id not in leaving
    )
    return classic, value if joining is not None and at_rest else value._replace(leader=None)


def _named(target: PartitionsByTopic, names: dict[bytes, str]) -> Iterator[TopicPartition]:
    for topic_id, partitions in target.items():
        if topic_id in names:
            yield from ((names[topic_id], each) for each in partitions)
