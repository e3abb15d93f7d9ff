"""Test ten thousand epochs of a group (KIP-848) while its members commit.

One member changes its subscription in each heartbeat, and each change is an epoch. Another member
joins and leaves, so that partitions change their owners. The other members keep their partitions.
They commit the offsets of half of these plainly, and of the others in transactions. The commits run
one after the other, with the last received epoch. Heartbeats use separate connections, so many
commits meet a newer epoch at the coordinator. All members are correct, and wait for their commits
before they report a revocation. No commit may be refused (a false fence). A new owner must find the
last acknowledged offset (or else a commit is lost).
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from oncelog.client import Admin, Producer
from oncelog.client.group_metadata import GroupMetadata
from oncelog.wire.errors import KafkaError, error_for

from .members import HEARTBEAT, JOINS, LEAVES, NOT_YET
from .stage import Stage

OFFSET_COMMIT, INCREMENTAL_ALTER_CONFIGS, GROUP_RESOURCE = 8, 44, 32
BY_NAME = 9  # OffsetCommit: the newest version with topic names, and the first with member epochs
GROUP, TOPIC, OTHERS = "many-epochs", "many-epochs", ("other-epochs-1", "other-epochs-2")
PARTITIONS, COMMITTERS = 8, 3
MOVES_EVERY = 40  # heartbeats between two moves of the member that joins and leaves
PAUSE_S, AGAIN_S, EPOCH_LIMIT_S, SPARE_S = 0.002, 0.1, 1.0, 60.0
KEPT_MAX = 5  # sentences of each kind
Place = tuple[bytes, int]


def epochs(stage: Stage) -> None:
    wanted = stage.size(10_000, 150)
    stage.create(TOPIC, PARTITIONS)
    for name in OTHERS:
        stage.create(name, 1)
    with stage.watched(f"the epoch of a group rises {wanted:,} times while members commit"):
        ledger = asyncio.run(_play(stage.cluster.bootstrap, wanted))
        stage.note(ledger.words())
        stage.require(not ledger.fences, f"false fences: {ledger.fences[:KEPT_MAX]}")
        stage.require(not ledger.lost, f"lost commits: {ledger.lost[:KEPT_MAX]}")
        for count in (ledger.epochs - wanted + 1, ledger.late, ledger.moves, ledger.transactions):
            stage.require(count > 0, f"this shows nothing: {ledger.words()}")


@dataclass(slots=True)
class _Ledger:
    """The results of all members. `expected` has the last acknowledged offset of each partition."""

    expected: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    owners: dict[int, str] = field(default_factory=dict[int, str])
    epochs: int = 0
    plain: int = 0
    transactions: int = 0
    late: int = 0  # commits answered after their member had received a newer epoch
    moves: int = 0
    fences: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])

    def words(self) -> str:
        return (
            f"{self.epochs:,} epochs; {self.plain:,} plain commits and {self.transactions:,} "
            f"transactions, {self.late:,} of them under way while the epoch rose; "
            f"{self.moves:,} changes of owners; {len(self.fences)} false fences, "
            f"{len(self.lost)} commits lost"
        )

    def took(self, partition: int, owner: str, found: int) -> None:
        """Record that a member got a partition and found this committed offset there."""
        self.moves += self.owners.get(partition, owner) != owner
        self.owners[partition] = owner
        if found != self.expected[partition]:
            self.lost.append(
                f"{owner} found {found} of {partition}, not {self.expected[partition]}"
            )
            self.expected[partition] = found

    def refused(self, member: "_Member", what: str, problem: object) -> None:
        self.fences.append(f"{what} of {member.name} in epoch {member.epoch}: {problem}")


async def _play(bootstrap: str, wanted: int) -> _Ledger:
    ledger, over = _Ledger(), asyncio.Event()
    async with Admin(bootstrap) as admin, asyncio.timeout(wanted * EPOCH_LIMIT_S + SPARE_S):
        await _assign_at_once(admin)
        mover, shaker = (_Member(name, admin, ledger) for name in ("mover", "shaker"))
        members = [_Member(f"committer-{i}", admin, ledger) for i in range(COMMITTERS)]
        async with asyncio.TaskGroup() as tasks:
            for member in members:
                tasks.create_task(member.live([(TOPIC,)], over))
            tasks.create_task(mover.live([(TOPIC,), OTHERS[:1]], over, every=MOVES_EVERY))
            tasks.create_task(shaker.live([(name,) for name in OTHERS], over, every=1))
            while ledger.epochs < wanted and not ledger.fences:
                ledger.epochs = max(shaker.epoch - max(shaker.first_epoch, 0), 0)
                await asyncio.sleep(AGAIN_S)
            over.set()
        found = await _committed(admin, range(PARTITIONS))
        for partition, owner in ledger.owners.items():
            ledger.took(partition, owner, found[partition])
    return ledger


async def _assign_at_once(admin: Admin) -> None:
    """Set the group's assignment interval to 0, and wait until its coordinator is available."""
    config = {"name": "consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": GROUP, "configs": [config]}
    connection = await admin.view.any_broker()
    answer = await connection.call(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]})
    assert not answer.responses[0].error_code, answer.responses[0].error_message
    await admin.find_coordinator(GROUP)


async def _committed(admin: Admin, partitions: Iterable[int]) -> dict[int, int]:
    """Return the committed offset of each partition, or 0 for a partition without one."""
    places = [(TOPIC, partition) for partition in partitions]
    found = await admin.groups.committed(GROUP, places, stable=True)
    return {place[1]: found[place].offset if place in found else 0 for place in places}


class _Member:
    """A correct group member with separate connections for heartbeats and commits.

    It also has a transactional producer.
    """

    def __init__(self, name: str, admin: Admin, ledger: _Ledger) -> None:
        self.name, self._admin, self._ledger = name, admin, ledger
        self.epoch, self.first_epoch = JOINS, -1
        self._topics: Sequence[str] = ()
        self._owned: set[Place] = set()
        self._topic_id = b""
        self._keeps: set[int] = set()  # partitions of TOPIC for which the member commits
        self._plain: dict[int, asyncio.Task[None]] = {}
        self._in_transaction = asyncio.Lock()

    async def live(
        self, turns: Sequence[Sequence[str]], over: asyncio.Event, *, every: int = 1
    ) -> None:
        """Run the member until `over`, and leave the group.

        The member subscribes to each list of topics in `turns` for `every` heartbeats.
        """
        view = self._admin.view
        await view.refresh([TOPIC])
        self._topic_id = view.snapshot.topic_ids[TOPIC]
        await self._find_coordinator()
        producer = Producer(view, transactional_id=f"{GROUP}-{self.name}")
        await producer.init_transactions()
        committing = asyncio.create_task(self._commit_in_transactions(producer, over))
        beats, is_all_said = 0, False
        try:
            while not over.is_set():
                turn = turns[beats // every % len(turns)]
                if turn != self._topics:
                    await self._give_up(set(self._owned))
                    self._topics, is_all_said = turn, False
                is_all_said = await self._beat(says_all=not is_all_said)
                beats += 1
                await asyncio.sleep(PAUSE_S)
            await self._give_up(set(self._owned))
            await self._speaks.call(HEARTBEAT, self._heartbeat(LEAVES))
        finally:
            await committing
            await producer.close()

    async def _find_coordinator(self) -> None:
        """Connect to the group's coordinator, which changes if a node lacks processor time."""
        node_id = await self._admin.find_coordinator(GROUP)
        view = self._admin.view
        self._speaks = await view.broker(node_id, f"{self.name} speaks")
        self._commits = await view.broker(node_id, f"{self.name} commits")

    async def _beat(self, *, says_all: bool) -> bool:
        """Send one heartbeat, and return whether the coordinator knows the member's whole state.

        With `says_all` the heartbeat has the subscription and the owned partitions.
        """
        said = self._heartbeat(self.epoch)
        if says_all or self.epoch == JOINS:
            rows: dict[bytes, list[int]] = {}
            for topic_id, partition in sorted(self._owned):
                rows.setdefault(topic_id, []).append(partition)
            said |= {
                "rebalance_timeout": 60_000,
                "subscribed_topic_names": list(self._topics),
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": each} for topic_id, each in rows.items()
                ],
            }
        answer = await self._speaks.call(HEARTBEAT, said)
        if answer.error_code in NOT_YET:
            await asyncio.sleep(AGAIN_S)
            await self._find_coordinator()
            return False
        if answer.error_code:
            problem = error_for(int(answer.error_code), answer.error_message)
            self._ledger.refused(self, "a heartbeat", problem)
            raise problem
        self.epoch = answer.member_epoch
        if self.first_epoch < 0:
            self.first_epoch = self.epoch
        if answer.assignment is None:
            return True
        given = {(t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions}
        await self._give_up(self._owned - given)
        await self._take(given - self._owned)
        return False

    def _heartbeat(self, epoch: int) -> dict[str, Any]:
        return {"group_id": GROUP, "member_id": self.name, "member_epoch": epoch}

    async def _take(self, places: set[Place]) -> None:
        self._owned |= places
        added = {partition for topic_id, partition in places if topic_id == self._topic_id}
        if not added:
            return
        for partition, offset in (await _committed(self._admin, added)).items():
            self._ledger.took(partition, self.name, offset)
        self._keeps |= added
        for partition in added:
            if not partition % 2:
                self._plain[partition] = asyncio.create_task(self._commit_plainly(partition))

    async def _give_up(self, places: set[Place]) -> None:
        """Stop commits for these partitions, wait for those in flight, and own them no longer."""
        going = {partition for topic_id, partition in places if topic_id == self._topic_id}
        self._keeps -= going
        for partition in going & self._plain.keys():
            await self._plain.pop(partition)
        async with self._in_transaction:
            self._owned -= places

    async def _commit_plainly(self, partition: int) -> None:
        ledger = self._ledger
        while partition in self._keeps and not ledger.fences:
            epoch, offset = self.epoch, ledger.expected[partition] + 1
            while (code := await self._commit(partition, offset, epoch)) in NOT_YET:
                await asyncio.sleep(AGAIN_S)
                await self._find_coordinator()
            if code:
                ledger.refused(self, f"a commit of {partition} from {epoch}", error_for(code))
                return
            ledger.expected[partition] = offset
            ledger.plain += 1
            ledger.late += self.epoch != epoch

    async def _commit(self, partition: int, offset: int, epoch: int) -> int:
        one = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": epoch,
            "member_id": self.name,
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [one]}],
        }
        answer = await self._commits.call(OFFSET_COMMIT, values, newest=BY_NAME)
        return int(answer.topics[0].partitions[0].error_code)

    async def _commit_in_transactions(self, producer: Producer, over: asyncio.Event) -> None:
        """Commit the offsets of the member's odd partitions in one transaction after another."""
        ledger = self._ledger
        while not over.is_set() and not ledger.fences:
            async with self._in_transaction:
                keeps, epoch = [p for p in self._keeps if p % 2], self.epoch
                offsets = {(TOPIC, p): ledger.expected[p] + 1 for p in keeps}
                if keeps:
                    await producer.begin_transaction()
                    try:
                        member = GroupMetadata(GROUP, epoch, self.name)
                        await producer.send_offsets_to_transaction(offsets, member)
                        await producer.commit_transaction()
                    except KafkaError as problem:
                        ledger.refused(self, f"a transaction from {epoch}", problem)
                        return
                    for (_, partition), offset in offsets.items():
                        ledger.expected[partition] = offset
                    ledger.transactions += 1
                    ledger.late += self.epoch != epoch
            await asyncio.sleep(0 if keeps else AGAIN_S)
