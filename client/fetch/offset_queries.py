"""ListOffsets, which finds the ends of partitions, and the offset that belongs to a time.

Each leader is asked for all its partitions at once, and again after a partition has moved.
"""

from collections.abc import Mapping

from ...wire.errors import KafkaError, LeaderNotAvailable, error_for
from ...wire.identifiers import TopicPartition
from ..by_topic import entries_by_topic
from ..cluster_view import ClusterView
from ..security.permissions import error_about

LIST_OFFSETS = 2
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


async def list_offsets(
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: int,
) -> dict[TopicPartition, int]:
    """Return the offset of EARLIEST, LATEST, MAX_TIMESTAMP or a wall time in ms, by partition.

    A partition without a matching record has -1.
    """
    found = await _ask(view, wanted, read_committed=read_committed, timeout_ms=timeout_ms)
    return {key: offset for key, (offset, _) in found.items()}


async def offsets_for_times(
    view: ClusterView,
    times_ms: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: int,
) -> dict[TopicPartition, tuple[int, int] | None]:
    """Return (offset, timestamp) of the first record at or after the given time, by partition.

    A partition without such a record has None.
    """
    if any(time_ms < 0 for time_ms in times_ms.values()):
        raise ValueError("times are wall-clock milliseconds, not below 0")
    found = await _ask(view, times_ms, read_committed=read_committed, timeout_ms=timeout_ms)
    return {key: each if each[0] >= 0 else None for key, each in found.items()}


async def _ask(
    view: ClusterView,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    timeout_ms: int,
) -> dict[TopicPartition, tuple[int, int]]:
    found: dict[TopicPartition, tuple[int, int]] = {}
    topics = {topic for topic, _ in wanted}

    async def attempt() -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        problem: KafkaError | None = None
        for key in wanted:
            if key in found:
                continue
            known = view.snapshot.partitions.get(key)
            if known is None:
                await view.leader_of(*key)  # finds it, or raises if there is none
                known = view.snapshot.partitions[key]
            if known.leader < 0:
                problem = LeaderNotAvailable(f"{key[0]}/{key[1]} has no leader at the moment")
                continue
            by_leader.setdefault(known.leader, []).append(key)
        for leader, keys in by_leader.items():
            problem = await _ask_leader(leader, keys) or problem
        if problem is not None:
            raise problem

    async def _ask_leader(leader: int, keys: list[TopicPartition]) -> KafkaError | None:
        entries = (
            (topic, {"partition_index": p, "timestamp": at_ms, "current_leader_epoch": -1})
            for (topic, p), at_ms in ((key, wanted[key]) for key in keys)
        )
        values = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "topics": entries_by_topic(entries),
        }
        try:
            answer = await (await view.broker(leader)).call(LIST_OFFSETS, values)
        except KafkaError as problem:
            return problem
        problem = None
        for topic in answer.topics:
            for p in topic.partitions:
                key = (str(topic.name), p.partition_index)
                if p.error_code:
                    sentence = error_for(int(p.error_code))
                    words = f"{key[0]}/{key[1]}: {sentence}"
                    problem = error_about(int(p.error_code), key[0], "Describe", words)
                    if not problem.retriable:
                        raise problem
                else:
                    found[key] = p.offset, -1 if p.timestamp is None else int(p.timestamp)
        return problem

    await view.retrying(attempt, timeout_ms=timeout_ms, topics=topics)
    return found
