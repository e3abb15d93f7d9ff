"""The assignors of a classic group, which are range, roundrobin, sticky and cooperative-sticky.

The file does no I/O. The leader of a group runs one assignor. Members may be other clients, so
range and roundrobin give the same result as Kafka's Java client. The sticky assignors guarantee
three properties instead. Every partition has one owner. With equal subscriptions two members differ
by at most one partition. No partition moves without need. The sticky assignors keep owned
partitions, give free partitions to the member with the fewest, then move single partitions from the
fullest to the emptiest member. (For subscriptions that overlap in part, Java's assignors also
search for chains of moves.)

With cooperative-sticky (KIP-429), a partition that changes its owner is unassigned in the first
round, and goes to the new owner after the old owner has revoked it.
"""

from collections.abc import Iterable, Mapping

from ...wire.consumer_protocol import NO_GENERATION, Subscription, decode_sticky
from ...wire.identifiers import TopicPartition

COOPERATIVE = "cooperative-sticky"
Assignment = dict[str, list[TopicPartition]]


def assign(name: str, members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    """Return partitions by member id. `counts` has the partition count of each existing topic.

    Raises KeyError for an unknown name.
    """
    return _ASSIGNORS[name](members, counts)


def _in_order(members: Mapping[str, Subscription], topic: str | None = None) -> list[str]:
    """Return a topic's subscribers in order, or all members without a topic.

    Static members come first, sorted by instance id, and then the others.
    """

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    wanted = (m for m, s in members.items() if topic is None or topic in s.topics)
    return sorted(wanted, key=place)


def _range(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    given: Assignment = {member_id: [] for member_id in members}
    for topic in sorted(counts):
        subscribers = _in_order(members, topic)
        if not subscribers:
            continue
        least, extra = divmod(counts[topic], len(subscribers))
        first = 0
        for index, member_id in enumerate(subscribers):
            after = first + least + (index < extra)
            given[member_id] += [(topic, p) for p in range(first, after)]
            first = after
    return given


def _roundrobin(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    given: Assignment = {member_id: [] for member_id in members}
    order, turn = _in_order(members), 0
    for topic in sorted(counts):
        if not _in_order(members, topic):
            continue
        for partition in range(counts[topic]):
            while topic not in members[order[turn % len(order)]].topics:
                turn += 1
            given[order[turn % len(order)]].append((topic, partition))
            turn += 1
    return given


def _sticky(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    claims = {
        member_id: max(
            (s.owned, s.generation), decode_sticky(s.user_data), key=lambda c: (c[1], len(c[0]))
        )
        for member_id, s in members.items()
    }
    return _balanced(members, counts, _owners(members, counts, claims))


def _cooperative(members: Mapping[str, Subscription], counts: Mapping[str, int]) -> Assignment:
    claims = {member_id: (s.owned, s.generation) for member_id, s in members.items()}
    owners = _owners(members, counts, claims)
    given = _balanced(members, counts, owners)
    return {
        member_id: [p for p in partitions if owners.get(p, member_id) == member_id]
        for member_id, partitions in given.items()
    }


def _owners(
    members: Mapping[str, Subscription],
    counts: Mapping[str, int],
    claims: Mapping[str, tuple[Iterable[TopicPartition], int]],
) -> dict[TopicPartition, str]:
    """Return the owner of each partition, as members claim.

    The newest generation wins, and two claims of the same generation cancel each other.
    """
    newest: dict[TopicPartition, int] = {}
    owners: dict[TopicPartition, str | None] = {}
    for member_id in sorted(claims):
        owned, generation = claims[member_id]
        for partition in owned:
            topic, number = partition
            if topic not in members[member_id].topics or not 0 <= number < counts.get(topic, 0):
                continue
            known = newest.get(partition, NO_GENERATION - 1)
            if generation > known:
                newest[partition], owners[partition] = generation, member_id
            elif generation == known and owners[partition] != member_id:
                owners[partition] = None
    return {partition: owner for partition, owner in owners.items() if owner is not None}


def _balanced(
    members: Mapping[str, Subscription],
    counts: Mapping[str, int],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    given: Assignment = {member_id: [] for member_id in sorted(members)}
    for partition in sorted(owners):
        given[owners[partition]].append(partition)
    for topic in sorted(counts):
        subscribers = [m for m in given if topic in members[m].topics]
        for number in range(counts[topic]):
            if subscribers and (topic, number) not in owners:
                given[min(subscribers, key=lambda m: len(given[m]))].append((topic, number))
    while _move_one(members, given):
        pass
    return {member_id: sorted(partitions) for member_id, partitions in given.items()}


def _move_one(members: Mapping[str, Subscription], given: Assignment) -> bool:
    """Move a partition from a member to one that has at least two fewer.

    Return False if there is none.
    """
    by_size = sorted(given, key=lambda m: len(given[m]))
    for fullest in reversed(by_size):
        for emptiest in by_size:
            if len(given[fullest]) - len(given[emptiest]) < 2:
                break
            wanted = members[emptiest].topics
            for index in range(len(given[fullest]) - 1, -1, -1):
                if given[fullest][index][0] in wanted:
                    given[emptiest].append(given[fullest].pop(index))
                    return True
    return False


_ASSIGNORS = {
    "range": _range,
    "roundrobin": _roundrobin,
    "sticky": _sticky,
    COOPERATIVE: _cooperative,
}
