"""A classic member of which a scenario controls each request, for groups with both protocols.

The member behaves like a correct member, but may also send a commit that a correct client would not
send. The history records its generations as epochs.
"""

from typing import Any

from oncelog.proof.chaos.load.recorded_tenures import RecordedTenures
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from oncelog.wire.errors import (
    ErrorCode,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from oncelog.wire.messages import control

from .context import Context

OFFSET_COMMIT, JOIN, HEARTBEAT, SYNC = (8, 8), (11, 9), (12, 4), (14, 5)  # with their versions
JOINS, NOT_ASKED = 0, -1
SESSION_MS, REBALANCE_MS, LIMIT_MS = 30_000, 60_000, 5_000
PROTOCOL = "range"


class HandMadeClassicMember:
    """A classic member, subscribed to one topic. `forgotten` counts its removals by the group."""

    def __init__(self, context: Context, group: str, topic: str, partitions: int) -> None:
        self.context, self.group, self.topic = context, group, topic
        self.process = context.recorder.new_process()
        self.member_id, self.generation = "", JOINS
        self.owned: set[int] = set()
        self.forgotten = 0
        self._all = range(partitions)
        self._must_join = True
        self._tenures = RecordedTenures(context.recorder, self.process, group)

    async def coordinator(self) -> int:
        """Return the node that coordinates the group now."""
        return await self.context.admin.find_coordinator(self.group)

    async def goes_on(self) -> set[int]:
        """Join if a rebalance is due, otherwise send a heartbeat. Return the owned partitions.

        Raises the error of the answer, unless it is about the rebalance or an unknown member.
        """
        if self._must_join:
            return await self._join()
        self._tenures.says(self.generation)
        try:
            await self._ask(HEARTBEAT, self._identity())
        except (RebalanceInProgress, IllegalGeneration):
            self._must_join = True
        except UnknownMemberId:
            self._forget()
        else:
            self._tenures.hears(self.generation, is_given=False, is_settled=True)
        return self.owned

    async def _join(self) -> set[int]:
        """Join and sync. Return the owned partitions, after revoking those assigned to others."""
        owned = tuple((self.topic, each) for each in sorted(self.owned))
        says = encode_subscription(Subscription((self.topic,), owned))
        fields = {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": PROTOCOL, "metadata": says}],
            "reason": None,
        }
        self._tenures.says(self.generation)
        try:
            joined = await self._ask(JOIN, fields)
        except UnknownMemberId:
            self._forget()
            return self.owned
        except KafkaError as error:
            if error.number != ErrorCode.MEMBER_ID_REQUIRED:
                raise
            return self.owned  # its id is known now
        self.generation = joined.generation_id
        leads = joined.leader == self.member_id
        given = [
            {"member_id": each.member_id, "assignment": self._part(number, len(joined.members))}
            for number, each in enumerate(joined.members)
        ]
        fields = self._identity() | {
            "protocol_type": "consumer",
            "protocol_name": PROTOCOL,
            "assignments": given if leads else [],
        }
        try:
            synced = await self._ask(SYNC, fields)
        except (RebalanceInProgress, IllegalGeneration):
            return self.owned
        except UnknownMemberId:
            self._forget()
            return self.owned
        has = {partition for _, partition in decode_assignment(synced.assignment)}
        self._tenures.hears(self.generation, is_given=True, is_settled=True)
        self._tenures.end((self.topic, each) for each in self.owned - has)
        self._tenures.begin((self.topic, each) for each in has - self.owned)
        self._must_join, self.owned = bool(self.owned - has), has
        return self.owned

    async def commit(self, partition: int, offset: int, generation: int) -> int:
        """Commit an offset with this generation, and return the error code."""
        recorder, where = self.context.recorder, f"{self.topic}/{partition}"
        row = recorder.group_commit_invoked(self.process, self.group, generation, where, offset)
        one = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = self._identity() | {
            "generation_id_or_member_epoch": generation,
            "topics": [{"name": self.topic, "partitions": [one]}],
        }
        answer = await self._ask(OFFSET_COMMIT, fields)
        code = int(answer.topics[0].partitions[0].error_code)
        outcome = OpOutcome.FAIL if code else OpOutcome.OK
        recorder.group_commit_ended(row, outcome, 1, str(code) if code else None)
        return code

    def _part(self, number: int, count: int) -> bytes:
        return encode_assignment([(self.topic, each) for each in self._all[number::count]])

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": None,
        }

    def _forget(self) -> None:
        """Drop the member id and partitions, since the group does not know the member."""
        self._tenures.end((self.topic, each) for each in self.owned)
        self.owned, self.member_id, self.generation = set(), "", JOINS
        self._must_join, self.forgotten = True, self.forgotten + 1

    async def _ask(self, api: tuple[int, int], fields: dict[str, Any]) -> Any:
        """Send a request to the coordinator, and return the answer.

        Raises the error of the answer, except for an OffsetCommit.
        """
        connection = await self.context.connection(await self.coordinator(), f"{self.process}")
        body = control.encode_request(*api, fields)
        answer = await connection.send(*api, [body], timeout_ms=LIMIT_MS)
        decoded = control.decode_response(*api, answer)
        if api == OFFSET_COMMIT or decoded.error_code == ErrorCode.NONE:
            return decoded
        if decoded.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = decoded.member_id
        raise error_for(int(decoded.error_code))
