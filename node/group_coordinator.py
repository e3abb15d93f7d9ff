"""The group coordinator of one broker: a shard for each led partition of __consumer_offsets.

A shard is what the committed records of its partition say, and nothing else: it is built by
replaying the log when this broker becomes the leader, and goes on by replaying each batch, in the
order of the log, when the high watermark has passed it. So loading and serving run the same code,
markers included, and nothing that might still be lost is ever shown. What a client waits for, the
record that its request appended, is replayed before the waiting `append` returns.

    becomes leader -> loading (COORDINATOR_LOAD_IN_PROGRESS) -> serving -> resigns (NOT_COORDINATOR)

Only the live sessions of groups (who waits in a rebalance, deadlines) are not in the log; with
the leadership they are gone, and the clients come again.
"""

from dataclasses import dataclass
from typing import Any

from ..wire.errors import CoordinatorNotAvailable


@dataclass(slots=True, eq=False)
class GroupShard:
    """The groups of one partition of __consumer_offsets.

    `offsets` is the `OffsetTable`; the coordinator feeds it with
        offsets.replay(header: BatchHeader, records: Sequence[wire.records.Record]) -> None
    for every committed batch (control batches and empty batches too; group records are to be
    skipped there, as offset records are in the replay of groups), and asks it
        offsets.group_ids() -> Iterable[str]            groups that have committed or pending offsets
        offsets.has_offsets(group_id: str) -> bool      the same for one
        offsets.has_pending(group_id: str) -> bool      offsets of open transactions
        offsets.tombstones(group_id: str) -> list[tuple[bytes, None]]      for DeleteGroups
        offsets.expired(group_id, *, base_ms: int | None, now_ms: int, retention_ms: int,
                        subscribed: frozenset[str]) -> list[tuple[bytes, None]]
            tombstones of what may be dropped; base_ms: when the group became empty, None when each
            offset's own commit time counts; topics in `subscribed` are kept.
    """

    index: int
    offsets: Any
    groups: dict[str, Any]

    def check_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> None:
        """Judge who commits (KIP-447); call `append` in the same turn of the event loop.

        A plain commit of a member also counts as its heartbeat. A group that does not exist is
        accepted with a generation below 0. Raises UnknownMemberId, IllegalGeneration,
        FencedInstanceId, RebalanceInProgress, GroupIdNotFound (plain commits from version 9),
        CoordinatorNotAvailable.
        """
        raise NotImplementedError

    def check_offset_fetch(self, group_id: str) -> bool:
        """Whether the group is known; if not, every offset is -1 and there is no error."""
        raise NotImplementedError

    def check_offset_delete(self, group_id: str) -> frozenset[str]:
        """The topics that its members subscribe to (their offsets stay, GROUP_SUBSCRIBED_TO_TOPIC).

        Raises GroupIdNotFound, NonEmptyGroup.
        """
        raise NotImplementedError


class GroupCoordinator:
    """All shards of one broker."""

    def shard_for(self, group_id: str) -> GroupShard:
        """The shard that a group belongs to, ready to serve.

        Raises CoordinatorNotAvailable while there is no __consumer_offsets (or this broker is
        going down), NotCoordinator, CoordinatorLoadInProgress.
        """
        raise CoordinatorNotAvailable

    async def append(
        self, shard: GroupShard, batch: bytes | bytearray, *, guard: int | None = None
    ) -> int:
        """Append a batch (`wire.records.encode_batch`); its first offset, once it is committed.

        The bytes are in the log when the first await of this coroutine is reached, so a check made
        in the same turn of the event loop holds for it. When it returns the batch has been
        replayed into the shard. Origin is COORDINATOR, acks all. Raises NotCoordinator,
        CoordinatorNotAvailable (not committed within offsets.commit.timeout.ms, or too few
        replicas: it may be committed later), MessageTooLarge, and what the log's producer checks
        raise (transactional batches).
        """
        raise CoordinatorNotAvailable

    async def until_settled(self, shard: GroupShard) -> None:
        """Return when all that was appended before is committed and replayed.

        A require_stable fetch needs this first: a transactional commit on its way to the replicas
        is not to be overlooked (KIP-447). Raises as `append`.
        """
        raise CoordinatorNotAvailable
