"""A consumer group member (KIP-848) of which a scenario controls each heartbeat and commit.

The member behaves like a correct member, but may also send a commit that a correct client would not
send. The history records all its operations.
"""

from typing import Any

from oncelog.proof.chaos.load.recorded_tenures import RecordedTenures
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.errors import error_for
from oncelog.wire.messages import control

from .context import Context

HEARTBEAT, HEARTBEAT_VERSION = 68, 1
OFFSET_COMMIT, COMMIT_VERSION = 8, 9
JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2
REBALANCE_TIMEOUT_MS = 60_000


class HandMadeMember:
    """A member of a consumer group, subscribed to one topic.

    `instance_id` is set for a static member.
    """

    def __init__(
        self, context: Context, group: str, topic: str, instance_id: str | None = None
    ) -> None:
        self.context, self.group, self.topic = context, group, topic
        self.instance_id = instance_id
        self.process = context.recorder.new_process()
        self.member_id = f"member-{self.process}"
        self.epoch = JOINS
        self.owned: set[int] = set()
        self._tenures = RecordedTenures(context.recorder, self.process, group)

    async def coordinator(self) -> int:
        """Return the node that coordinates the group now."""
        return await self.context.admin.find_coordinator(self.group)

    async def heartbeat(self, *, node_id: int | None = None, timeout_ms: int = 5_000) -> set[int]:
        """Send a heartbeat, the first of which joins, and return the owned partitions.

        Raises the error of the answer.
        """
        joins, topic_id = self.epoch == JOINS, await self._topic_id()
        fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_TIMEOUT_MS if joins else -1,
            "subscribed_topic_names": [self.topic] if joins else None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [{"topic_id": topic_id, "partitions": sorted(self.owned)}]
            if self.owned
            else [],
        }
        self._tenures.says(self.epoch)
        answer = await self._ask(HEARTBEAT, HEARTBEAT_VERSION, fields, node_id, timeout_ms)
        if answer.error_code:
            raise error_for(int(answer.error_code), answer.error_message)
        given = answer.assignment
        self._tenures.hears(answer.member_epoch, is_given=given is not None, is_settled=True)
        self.epoch = answer.member_epoch
        if given is not None:
            places = {p for topic in given.topic_partitions for p in topic.partitions}
            self._tenures.end((self.topic, p) for p in self.owned - places)
            self._tenures.begin((self.topic, p) for p in places - self.owned)
            self.owned = places
        return self.owned

    async def leave(self) -> None:
        """Leave the group, a static member temporarily. Raises the error of the answer."""
        fields = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": LEAVES if self.instance_id is None else LEAVES_FOR_NOW,
            "instance_id": self.instance_id,
        }
        self._tenures.end((self.topic, p) for p in self.owned)
        self.owned = set()
        answer = await self._ask(HEARTBEAT, HEARTBEAT_VERSION, fields, None, 5_000)
        if answer.error_code:
            raise error_for(int(answer.error_code), answer.error_message)

    async def commit(self, partition: int, offset: int, epoch: int) -> int:
        """Commit an offset with this member epoch, and return the error code."""
        recorder = self.context.recorder
        where = f"{self.topic}/{partition}"
        row = recorder.group_commit_invoked(self.process, self.group, epoch, where, offset)
        one = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": epoch,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "topics": [{"name": self.topic, "partitions": [one]}],
        }
        answer = await self._ask(OFFSET_COMMIT, COMMIT_VERSION, fields, None, 5_000)
        code = int(answer.topics[0].partitions[0].error_code)
        outcome = OpOutcome.FAIL if code else OpOutcome.OK
        recorder.group_commit_ended(row, outcome, 1, str(code) if code else None)
        return code

    async def _ask(
        self, api_key: int, version: int, fields: dict[str, Any], node_id: int | None, limit_ms: int
    ) -> Any:
        at = await self.coordinator() if node_id is None else node_id
        connection = await self.context.connection(at, f"{self.process}")
        body = control.encode_request(api_key, version, fields)
        answer = await connection.send(api_key, version, [body], timeout_ms=limit_ms)
        return control.decode_response(api_key, version, answer)

    async def _topic_id(self) -> bytes:
        view = self.context.admin.view
        if self.topic not in view.snapshot.topic_ids:
            await view.refresh([self.topic])
        return view.snapshot.topic_ids[self.topic]
