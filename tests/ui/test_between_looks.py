"""Test the observer while the cluster changes between two of the observer's requests."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from oncelog.client.cluster_view import PartialList
from oncelog.client.group_admin import GroupAdmin
from oncelog.client.groups.descriptions import GroupListing
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.inspect.explain import PartitionTransaction
from oncelog.deploy.inspect.transaction_facts import holders, without_ended
from oncelog.wire.errors import ClusterAuthorizationFailed, NetworkException
from oncelog.wire.identifiers import TopicPartition

from ..awaiting import until

pytest.importorskip("uvicorn", reason="the extra ui is not installed")
from oncelog.ui.facts import ObservedOffsets
from oncelog.ui.observer import Observer

from .known_facts import facts, group, partition
from .sites import open_site

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
KEY = ("orders", 0)


async def test_transaction_begun_after_its_id_was_described_is_not_shown_as_hanging(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 1)
        await producer.commit_transaction()
        described = await opened.admin.transactions.describe("app-1")
        await producer.begin_transaction()
        await producer.send("orders", value=b"more", partition=0)
        await producer.flush()
        found = await opened.site.observer._holders([KEY], [described])  # type: ignore[attr-defined]
        assert [each.is_known(KEY) for each in found[KEY]] == [True]
        await producer.close()


async def test_transaction_ended_before_its_coordinator_was_asked_is_not_shown_as_hanging(
    tmp_path: Path,
):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 1)
        (held,) = (await holders(opened.admin, [KEY]))[KEY]
        unknown: dict[TopicPartition, tuple[PartitionTransaction, ...]]
        unknown = {KEY: (PartitionTransaction(held.producer, None),)}
        assert await without_ended(opened.admin, unknown) == unknown
        await producer.commit_transaction()
        assert await without_ended(opened.admin, unknown) == {KEY: ()}
        await producer.close()


@pytest.mark.parametrize("problem", [OSError("gone"), Failure("gone")])
async def test_observer_request_that_fails_is_repeated(problem: Exception):
    asked: list[int] = []

    async def ask() -> dict[str, Any]:
        asked.append(1)
        if len(asked) == 1:
            raise problem
        return {"checks": ()}

    observer = Observer({"bootstrap.servers": "127.0.0.1:1"})
    observer.start({"doctor": (0.05, ask)})
    try:
        await until(lambda: "doctor" in observer.facts.as_of_ms)
    finally:
        await observer.close()


async def test_observer_keeps_the_groups_of_a_broker_that_does_not_answer() -> None:
    class Groups:
        async def list_groups(self, *, needs_all_brokers: bool) -> PartialList[GroupListing]:
            assert not needs_all_brokers
            moved = GroupListing("moved", "consumer", "Empty", 1, "classic")
            return PartialList([moved], {2: NetworkException("node 2 cannot be reached")})

        async def describe_listed(self, listed: Iterable[GroupListing]) -> dict[str, Any]:
            return {each.group_id: (None, {}) for each in listed}

    observer = Observer({"bootstrap.servers": "127.0.0.1:1"})
    observer.admin.groups = cast(GroupAdmin, Groups())
    coordinators = {"moved": 2, "silent": 2, "deleted": 1}
    known = {name: group(name, coordinator=node_id) for name, node_id in coordinators.items()}
    observer.facts = replace(observer.facts, groups=known)
    found = (await observer._groups())["groups"]  # type: ignore[attr-defined]
    assert {name: each.coordinator for name, each in found.items()} == {"moved": 1, "silent": 2}
    await observer.close()


async def test_observer_with_a_refused_part_ends_the_wait_for_changes() -> None:
    problems: list[Exception] = [OSError("gone"), ClusterAuthorizationFailed()]

    async def ask() -> dict[str, Any]:
        raise problems.pop(0)

    observer = Observer({"bootstrap.servers": "127.0.0.1:1"})
    keeping = asyncio.create_task(observer._keep("doctor", 0.01, ask))  # type: ignore[attr-defined]
    try:
        async with asyncio.timeout(10):
            while "doctor" not in observer.facts.not_exposed:
                await observer.changed(60)
        assert dict(observer.facts.silent) == {}
    finally:
        keeping.cancel()
        await observer.close()


async def test_observer_facts_are_dated_by_the_time_of_their_first_request() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ask() -> dict[str, Any]:
        asked.set()
        await answered.wait()
        return {"checks": ()}

    observer = Observer({"bootstrap.servers": "127.0.0.1:1"})
    observer.start({"doctor": (60.0, ask)})
    try:
        await asked.wait()
        told_ms = time.time_ns() // 1_000_000
        await until(lambda: time.time_ns() // 1_000_000 > told_ms)
        answered.set()
        await until(lambda: "doctor" in observer.facts.as_of_ms)
        assert observer.facts.as_of_ms["doctor"] <= told_ms
    finally:
        await observer.close()


async def test_end_offset_sum_keeps_the_last_offset_of_a_partition_without_an_answer() -> None:
    observer = Observer({"bootstrap.servers": "127.0.0.1:1"})
    known = {("orders", 0): partition("orders", 0), ("orders", 1): partition("orders", 1)}
    told = {("orders", 0): ObservedOffsets(5, 5), ("orders", 1): ObservedOffsets(7, 7)}
    observer.start({})
    try:
        assert observer._sample(facts(partitions=known, offsets=told), 1).end_offsets == 12
        del told["orders", 1]
        assert observer._sample(facts(partitions=known, offsets=told), 2).end_offsets == 12
    finally:
        await observer.close()


async def test_log_start_and_min_insync_are_refreshed_and_shown_with_their_own_age(tmp_path: Path):
    async with open_site(tmp_path) as opened:
        observer = opened.site.observer
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 3)
        await producer.commit_transaction()
        await producer.close()
        await until(lambda: KEY in observer.facts.log_starts)
        assert await observer.min_insync("orders") == 1
        await opened.admin.delete_records(*KEY, 2)
        await opened.admin.alter_configs("orders", {"min.insync.replicas": "2"})
        began_ms = time.time_ns() // 1_000_000
        observer.facts = replace(observer.facts, min_insync_ms={"orders": 0})
        await opened.told("log starts")
        assert await observer.min_insync("orders") == 2
        found = (await opened.visitor.get("/api/partitions?topic=orders&partition=0")).json()
        assert found["partitions"][0]["log_start"] == 2
        assert found["min_insync_replicas_as_of_ms"] >= began_ms
        assert began_ms <= found["log_starts_as_of_ms"] != found["as_of_ms"]
        page = (await opened.visitor.get("/topics/orders/0")).body
        assert "<dt>log start</dt><dd>2 as of <time" in page


@pytest.mark.in_turn
async def test_search_for_committed_records_after_much_aborted_data_stops_at_its_limit(
    tmp_path: Path,
):
    async with open_site(tmp_path) as opened:
        await opened.admin.create_topic("orders", partitions=1)
        producer = await opened.open_transaction("app-1", "orders", 0)
        for _ in range(10):
            await producer.send("orders", value=b"x" * 300_000, partition=0)
            await producer.flush()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("orders", value=b"last", partition=0)
        await producer.commit_transaction()
        where = "orders&partition=0&isolation=read_committed&offset="
        found = (await opened.visitor.get(f"/api/records?topic={where}0")).json()
        assert (found["records"], found["next_offset"]) == ([], 8)
        page = await opened.visitor.get(f"/topics/orders/0/records?{where[19:]}0")
        assert "no record before offset 8. Look for later ones" in page.body
        found = (await opened.visitor.get(f"/api/records?topic={where}8")).json()
        assert [each["value"] for each in found["records"]] == ["last"]
        await producer.close()
