"""A member of the newer group protocol, and a coordinator that a test gives its assignments."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from oncelog.client import Consumer, OffsetAndMetadata
from oncelog.client.groups.consumer_member import ConsumerGroupMember
from oncelog.client.groups.membership import MemberHeartbeat, MembershipState, Places
from oncelog.wire.errors import RequestTimedOut
from oncelog.wire.identifiers import TopicPartition
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until

NO_BROKER = "127.0.0.1:1"
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16
P, Q = ("t", 0), ("t", 1)
OF_P, OF_Q = (OLD, 0), (OLD, 1)


class Scene:
    """A consumer with the newer group protocol, and its coordinator under the test's control."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        given = {"group_id": "g", "group_protocol": "consumer", **settings}
        self.consumer = Consumer(NO_BROKER, **given)
        assert isinstance(self.consumer._member, ConsumerGroupMember)
        self.member = self.consumer._member
        self.view = self.consumer.view
        self.view.snapshot.topic_ids = {"t": OLD}
        self.said: list[MemberHeartbeat] = []
        self.committed: list[set[TopicPartition]] = []
        self.happened: list[tuple[str, list[TopicPartition]]] = []
        self.named = asyncio.Event()  # set when the cluster returns the name of the other topic
        self.loses_answers = False
        self._given: Places | None = None
        monkeypatch.setattr(self.member.requests, "heartbeat", self._heartbeat)
        monkeypatch.setattr(self.member.requests, "commit", self._commit)
        monkeypatch.setattr(self.consumer._positions, "_committed", self._committed)
        monkeypatch.setattr(self.view, "refresh_by_id", self._refresh_by_id)

    async def _heartbeat(
        self, heartbeat: MemberHeartbeat, limit_ms: int
    ) -> tuple[int, int, Places | None]:
        self.said.append(heartbeat)
        await asyncio.sleep(0)
        if self.loses_answers:
            raise RequestTimedOut
        given, self._given = self._given, None
        return 5, 20, given

    async def _commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, by_itself: bool = False
    ) -> None:
        self.committed.append(set(offsets))

    async def _committed(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return dict.fromkeys(partitions, OffsetAndMetadata(0))

    async def _refresh_by_id(self, topic_ids: set[bytes]) -> None:
        if OTHER in topic_ids:
            await self.named.wait()
            self.view.snapshot.topic_ids |= {"u": OTHER}

    def subscribe(self, **callbacks: Callable[..., Any]) -> None:
        def noting(what: str) -> Callable[[list[TopicPartition]], None]:
            return lambda places: self.happened.append((what, places))

        names = ("on_assigned", "on_revoked", "on_lost")
        given: dict[str, Any] = {name: noting(name) for name in names} | callbacks
        self.consumer.subscribe(["t"], **given)

    async def is_given(self, *places: tuple[bytes, int]) -> None:
        """Assign these partitions, and wait until a member that has joined has received them."""
        self._given = frozenset(places)
        membership = self.member._membership
        if membership.state is not MembershipState.JOINING:
            await until(lambda: membership.target == frozenset(places))

    async def polls_until(self, holds: Callable[[], bool]) -> None:
        """Poll until a condition holds."""
        async with asyncio.timeout(10):
            await self.consumer.poll(5)
            while not holds():
                await self.consumer.poll(5)

    async def has(self, *places: tuple[bytes, int]) -> None:
        """Poll until the member has reported that it owns exactly these partitions."""
        await self.polls_until(lambda: self.says_that_it_owns(*places))
        await self.polls_until(lambda: not self.consumer._positions.unknown)

    def says_that_it_owns(self, *places: tuple[bytes, int]) -> bool:
        told = [each.owned for each in self.said if each.owned is not None]
        is_so = self.member._membership.owned == frozenset(places)
        return is_so and bool(told) and told[-1] == frozenset(places)

    def bring(self, *partitions: TopicPartition) -> None:
        """Buffer one fetched record for each of these partitions."""
        for key in partitions:
            state = self.consumer._positions.of(*key)
            state.load(encode_batch([Record(0, 1, None, b"v")], base_offset=state.position), None)

    async def poll_now(self) -> list[TopicPartition]:
        """Poll once without waiting, and return the partition of each returned record."""
        return sorted((row.topic, row.partition) for row in await self.consumer.poll(0))
