"""A case in which 500 members, each on its own connection, join a group (KIP-848) and leave."""

import asyncio
import time
from typing import Any

from oncelog.wire.errors import ErrorCode, error_for
from oncelog.wire.framing import encode_request_header, encode_response_header
from oncelog.wire.messages import control

from .connection import Address
from .stage import Stage

HEARTBEAT, VERSION = 68, 1
JOINS, LEAVES = 0, -1
TOPIC, GROUP = "joined", "many-members"
# Apache Kafka 4.3 took 1.3 to 2.4 s, and 11.8 s, on an otherwise idle machine of two cores.
FIRST_S_MAX, WHOLE_S_MAX = 2.5, 12.0
TIMEOUT_S, LOOK_S, AGAIN_S = 120.0, 0.05, 0.1
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def members(stage: Stage) -> None:
    count, partitions = stage.size(500, 60), stage.size(1_000, 120)
    stage.create(TOPIC, partitions)
    address = stage.address(stage.cluster.coordinator("group", GROUP))
    with stage.watched(f"{count} members join a group, {partitions:,} partitions, and leave"):
        first_s, whole_s, beats = asyncio.run(_join_and_leave(address, count, partitions))
        stage.note(
            f"first answers within {first_s:.1f} s, whole and in one epoch after {whole_s:.1f} s, "
            f"{beats:,} heartbeats"
        )
        if not stage.is_short:
            stage.require(first_s <= FIRST_S_MAX, f"a member was answered after {first_s:.1f} s")
            stage.require(whole_s <= WHOLE_S_MAX, f"the group was whole after {whole_s:.1f} s")


async def _join_and_leave(
    address: Address, count: int, partitions: int
) -> tuple[float, float, int]:
    """Let `count` members join a group and leave it. Return two times in seconds, and a number.

    The times are those until every member had an answer, and until every partition had an owner.
    The number is that of all heartbeats.
    """
    began_s, may_leave = time.monotonic(), asyncio.Event()
    joining = [_Member(address, number) for number in range(count)]
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        for member in joining:
            tasks.create_task(member.live(may_leave))
        while not _is_whole(joining, partitions):
            await asyncio.sleep(LOOK_S)
        whole_s = time.monotonic() - began_s
        may_leave.set()
    first_s = max(member.answered_s for member in joining) - began_s
    return first_s, whole_s, sum(member.beats for member in joining)


def _is_whole(joined: "list[_Member]", partitions: int) -> bool:
    """Return whether all members have the same epoch, and each partition has one owner."""
    owned = [each for member in joined for each in member.owned]
    epochs = {member.epoch for member in joined}
    return len(owned) == len(set(owned)) == partitions and len(epochs) == 1


class _Member:
    """A member that sends exactly the requests of a correct member."""

    def __init__(self, address: Address, number: int) -> None:
        self._address, self._id = address, f"member-{number}"
        self.epoch, self.beats = JOINS, 0
        self.owned: set[int] = set()
        self.answered_s = 0.0
        self._topic_id = b""

    async def live(self, may_leave: asyncio.Event) -> None:
        """Join, take the assignment, and send heartbeats until the member may leave."""
        reader, writer = await asyncio.open_connection(*self._address)
        says_all = True
        while not may_leave.is_set():
            answer = await self._ask(reader, writer, self._heartbeat(self.epoch, says_all))
            if answer.error_code in NOT_YET:
                await asyncio.sleep(AGAIN_S)
                continue
            self._take_in(answer)
            says_all = answer.assignment is not None  # that the member has its assignment now
            if not says_all:
                await _wait(may_leave, answer.heartbeat_interval / 1_000)
        answer = await self._ask(reader, writer, self._heartbeat(LEAVES, False))
        assert not answer.error_code, error_for(int(answer.error_code), answer.error_message)
        writer.close()

    def _take_in(self, answer: Any) -> None:
        assert not answer.error_code, error_for(int(answer.error_code), answer.error_message)
        self.answered_s = self.answered_s or time.monotonic()
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self.owned = {p for topic in given for p in topic.partitions}
            self._topic_id = given[0].topic_id if given else self._topic_id

    def _heartbeat(self, epoch: int, says_all: bool) -> dict[str, Any]:
        values = {"group_id": GROUP, "member_id": self._id, "member_epoch": epoch}
        if not says_all:
            return values
        owned = [{"topic_id": self._topic_id, "partitions": sorted(self.owned)}]
        return values | {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": owned if self.owned else [],
        }

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, values: dict[str, Any]
    ) -> Any:
        self.beats += 1
        header = encode_request_header(HEARTBEAT, VERSION, self.beats, "size")
        body = control.encode_request(HEARTBEAT, VERSION, values)
        writer.write((len(header) + len(body)).to_bytes(4, "big") + header + body)
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = memoryview(await reader.readexactly(size))
        skipped = len(encode_response_header(HEARTBEAT, VERSION, 0))
        return control.decode_response(HEARTBEAT, VERSION, frame[skipped:])


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), limit_s)
    except TimeoutError:
        return
