"""Test revocations, assignments and commits of a member of the newer group protocol."""

import asyncio
from typing import Any

import pytest

from oncelog.client.failures import CommitFailed
from oncelog.client.groups.membership import MembershipState
from oncelog.wire.identifiers import TopicPartition

from ...awaiting import until
from .scene import NEW, OF_P, OF_Q, OTHER, P, Q, Scene


async def test_commit_for_a_topic_created_again_does_not_store_the_old_offset(scene: Scene) -> None:
    """The request has the topic's name, so the broker would store the offset for the new topic."""
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


async def test_topic_with_all_partitions_revoked_is_looked_up_before_its_offsets_are_committed(
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


async def test_partition_of_a_recreated_topic_is_assigned_after_the_old_partition_is_revoked(
    scene: Scene,
) -> None:
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


async def test_member_with_an_unchanged_assignment_applies_a_newer_target_only_after_the_next_poll(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of an added topic stays unknown, so the assignment does not change at first."""
    asked = asyncio.Event()

    async def refresh_by_id(_: set[bytes]) -> None:
        asked.set()
        await scene.named.wait()

    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P, OF_Q)
        await scene.has(OF_P, OF_Q)
        monkeypatch.setattr(scene.view, "refresh_by_id", refresh_by_id)
        await scene.is_given(OF_P, OF_Q, (OTHER, 0))
        scene.bring(P, Q)
        assert await scene.poll_now() == [P, Q]
        await asked.wait()
        await scene.is_given(OF_P)  # while the application processes records of Q
        scene.named.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert scene.consumer.assignment == [P, Q] and len(scene.happened) == 1
        await scene.has(OF_P)


async def test_assigned_partition_is_not_taken_while_a_report_of_owned_ones_is_unanswered(
    scene: Scene,
) -> None:
    """The coordinator may have given the partition to another member after the report."""
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given()
        await scene.has()
        await scene.is_given(OF_P)
        assert scene.member._membership.state is MembershipState.RECONCILING
        scene.loses_answers, count = True, len(scene.said)
        await until(lambda: len(scene.said) > count + 1)
        await scene.polls_until(lambda: len(scene.said) > count + 4)
        assert scene.happened == []
        scene.loses_answers = False
        await scene.has(OF_P)
        assert scene.happened == [("on_assigned", [P])]


async def test_poll_during_on_lost_returns_no_records_of_lost_partitions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll that looks up positions during the callback may return records right after it."""
    looks, told, goes_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def refresh(topics: set[str]) -> None:
        await looks.wait()
        scene.view.snapshot.topic_ids |= {"t": NEW}

    async def on_lost(places: list[TopicPartition]) -> None:
        told.set()
        await goes_on.wait()

    async def committed(partitions: list[TopicPartition]) -> dict[TopicPartition, Any]:
        looks.set()
        await goes_on.wait()
        return {}

    async with asyncio.timeout(20), scene.consumer:
        scene.subscribe(on_lost=on_lost)
        scene.view.snapshot.topic_ids |= {"u": OTHER}
        await scene.is_given(OF_P, (OTHER, 0), (OTHER, 1))
        await scene.has(OF_P, (OTHER, 0), (OTHER, 1))
        scene.bring(P, ("u", 0))
        scene.consumer.seek("u", 1, -1)  # so that its position must be found
        monkeypatch.setattr(scene.view, "refresh", refresh)
        monkeypatch.setattr(scene.consumer._positions, "_committed", committed)
        await scene.is_given((OTHER, 1))
        assert await scene.poll_now() == []
        await told.wait()
        assert await scene.poll_now() == []
        goes_on.set()
        await until(lambda: scene.consumer.assignment == [("u", 1)])
        assert scene.happened[1:] == [("on_revoked", [("u", 0)])]


async def test_poll_with_partitions_missing_from_the_target_returns_none_of_their_records(
    scene: Scene,
) -> None:
    """The name of an added topic is unknown, so the revocation takes longer than the poll."""
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P, OF_Q)
        await scene.has(OF_P, OF_Q)
        scene.bring(P, Q)
        await scene.is_given(OF_Q, (OTHER, 0))
        assert await scene.poll_now() == [Q]
        await scene.is_given((OTHER, 0))  # while the application processes records of Q
        scene.named.set()
        await until(lambda: scene.consumer.assignment == [Q, ("u", 0)])
        for _ in range(10):
            await asyncio.sleep(0)
        assert ("on_revoked", [Q]) not in scene.happened, "it is in use"
        await scene.has((OTHER, 0))
        assert ("on_revoked", [Q]) in scene.happened and scene.consumer.assignment == [("u", 0)]


async def test_commit_of_positions_is_refused_if_partitions_were_lost(scene: Scene) -> None:
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


async def test_heartbeat_watcher_is_told_whether_each_answer_has_an_assignment(
    scene: Scene,
) -> None:
    heard: list[tuple[int, bool, bool]] = []

    class Watcher:
        def says(self, epoch: int) -> None:
            pass

        def hears(self, epoch: int, *, is_given: bool, is_settled: bool) -> None:
            heard.append((epoch, is_given, is_settled))

    async with scene.consumer:
        scene.consumer.watch_heartbeats(Watcher())
        scene.subscribe()
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        await until(lambda: len(heard) > 2)
        assert heard[:3] == [(5, True, False), (5, False, True), (5, False, True)]
