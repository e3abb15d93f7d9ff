"""A member of the newer protocol gives up and takes: when, what it commits, and what it says."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from oncelog.client import Consumer, OffsetAndMetadata
from oncelog.client.failures import CommitFailed
from oncelog.client.groups.consumer_member import ConsumerGroupMember
from oncelog.client.groups.membership import (
    LEAVES,
    NOWHERE,
    MemberHeartbeat,
    MembershipState,
    Places,
)
from oncelog.wire.identifiers import TopicPartition
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until

NO_BROKER = "127.0.0.1:1"
OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16
P, Q = ("t", 0), ("t", 1)
OF_P, OF_Q = (OLD, 0), (OLD, 1)


class Scene:
    """A consumer, and a coordinator that gives it what the test wants."""

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
        self.named = asyncio.Event()  # the cluster tells the name of the other topic
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
        given, self._given = self._given, None
        return 5, 20, given

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
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
        """Tell the member, and return when it has heard."""
        self._given = frozenset(places)
        membership = self.member._membership
        if membership.state is not MembershipState.JOINING:
            await until(lambda: membership.target == frozenset(places))

    async def polls_until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(3):
            while not holds():
                await self.consumer.poll(5)

    async def has(self, *places: tuple[bytes, int]) -> None:
        """Poll until it owns exactly these, and has said so."""
        await self.polls_until(lambda: self.says_that_it_owns(*places))
        await self.polls_until(lambda: not self.consumer._positions.unknown)

    def says_that_it_owns(self, *places: tuple[bytes, int]) -> bool:
        told = [each.owned for each in self.said if each.owned is not None]
        is_so = self.member._membership.owned == frozenset(places)
        return is_so and bool(told) and told[-1] == frozenset(places)

    def bring(self, *partitions: TopicPartition) -> None:
        """A record of each has been fetched."""
        for key in partitions:
            state = self.consumer._positions.of(*key)
            state.load(encode_batch([Record(0, 1, None, b"v")], base_offset=state.position), None)

    async def poll_now(self) -> list[TopicPartition]:
        """The partitions of what a poll gives."""
        return sorted((row.topic, row.partition) for row in await self.consumer.poll(0))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_topic_made_anew_does_not_get_the_offset_of_the_old_one(scene: Scene) -> None:
    """Offsets are committed by names: the broker would take them for the new topic's."""
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P, OF_Q)
        await scene.has(OF_P, OF_Q)
        scene.bring(P, Q)
        assert await scene.poll_now() == [P, Q]
        scene.view.snapshot.topic_ids = {"t": NEW}
        await scene.is_given((NEW, 0))
        await scene.has((NEW, 0))
        assert scene.committed == []
        assert scene.consumer.assignment == [P] and scene.consumer.position(*P) == 0
        assert scene.happened[1:] == [("on_lost", [P, Q]), ("on_assigned", [P])]


async def test_topic_that_goes_whole_is_asked_for_before_its_offsets_are_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refresh(topics: set[str]) -> None:
        scene.view.snapshot.topic_ids |= dict.fromkeys(topics, NEW)

    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        scene.bring(P)
        assert await scene.poll_now() == [P]
        monkeypatch.setattr(scene.view, "refresh", refresh)
        await scene.is_given()
        await scene.has()
        assert scene.committed == [] and scene.happened[-1] == ("on_lost", [P])


async def test_partition_whose_name_is_in_use_waits_for_the_one_before_it(scene: Scene) -> None:
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        scene.view.snapshot.topic_ids = {"t": NEW}
        await scene.is_given(OF_P, (NEW, 0))
        await scene.has(OF_P)
        await scene.is_given((NEW, 0))
        await scene.has((NEW, 0))
        assert scene.consumer.assignment == [P]
        assert scene.happened[1:] == [("on_lost", [P]), ("on_assigned", [P])]


async def test_poll_gives_nothing_of_what_the_target_no_longer_has(scene: Scene) -> None:
    """The name of another topic is not known yet, so that giving up takes longer than the poll."""
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P, OF_Q)
        await scene.has(OF_P, OF_Q)
        scene.bring(P, Q)
        await scene.is_given(OF_Q, (OTHER, 0))
        assert await scene.poll_now() == [Q]
        await scene.is_given((OTHER, 0))  # while the program works on records of Q
        scene.named.set()
        await until(lambda: scene.consumer.assignment == [Q, ("u", 0)])
        for _ in range(10):
            await asyncio.sleep(0)
        assert ("on_revoked", [Q]) not in scene.happened, "it is in use"
        await scene.has((OTHER, 0))
        assert ("on_revoked", [Q]) in scene.happened and scene.consumer.assignment == [("u", 0)]


async def test_commit_of_positions_is_refused_where_some_of_them_went(scene: Scene) -> None:
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P, OF_Q)
        await scene.has(OF_P, OF_Q)
        scene.bring(P)
        assert await scene.poll_now() == [P]
        await scene.member.holding.lose()
        with pytest.raises(CommitFailed, match="t/0"):
            await scene.consumer.commit()
        await scene.poll_now()
        await scene.consumer.commit()


async def test_callback_that_raises_ends_one_poll_and_not_the_membership(scene: Scene) -> None:
    def raises(places: list[TopicPartition]) -> None:
        raise ValueError(places)

    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        scene.subscribe(on_assigned=raises)
        await scene.is_given(OF_Q)
        with pytest.raises(ValueError, match="'t', 1"):
            await scene.has(OF_Q)
        await scene.has(OF_Q)
        assert scene.consumer.assignment == [Q]


async def test_close_leaves_whatever_the_callback_does(scene: Scene) -> None:
    def raises(places: list[TopicPartition]) -> None:
        raise ValueError(places)

    scene.subscribe(on_revoked=raises)
    await scene.is_given(OF_P)
    await scene.has(OF_P)
    with pytest.raises(ValueError, match="'t', 0"):
        await scene.consumer.close()
    assert scene.said[-1].member_epoch == LEAVES
    assert scene.member._membership.owned == NOWHERE
