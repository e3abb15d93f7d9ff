"""Requests about transactions, with faults in their fields, lists, names and limits.

The answers of Kafka in each state of a transaction are recorded by `recorded/record.py`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from oncelog.wire.errors import ErrorCode

from ...waiting import until
from ..raw_peer import UNKNOWN_ID, RawPeer
from ..transactional_owner import Owner, wait_for_coordinator

Scenario = Iterator[tuple[str, Any]]
FETCH_GROUP, ADD_PARTITIONS, ADD_OFFSETS, END, TXN_OFFSET_COMMIT = 9, 24, 25, 26, 28


def init_producer_id(peer: RawPeer, version: int) -> Scenario:
    asked = partial(peer.init_producer_id, version)
    mark = f"init-{version}"
    Owner(peer, f"{mark}-warm")
    yield "new", asked(mark)
    yield "again", asked(mark)
    for timeout in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
        yield f"timeout {timeout}", asked(f"{mark}-t{timeout}", timeout=timeout)
        yield f"timeout {timeout}, known id", asked(mark, timeout=timeout)
    yield "long name", asked(mark + "x" * 5000)
    yield "a name of other letters", asked(f"{mark}-ü🎈")
    yield "a name of spaces", asked("  ")
    if version >= 3:
        yield "unknown, with identity", asked(f"{mark}-u", 77_000_000, 3)
        yield "unknown, with id only", asked(f"{mark}-u", 77_000_000, -1)
        yield "unknown, with epoch only", asked(f"{mark}-u", -1, 3)
        yield "negative id", asked(mark, -5, 3)
        yield "negative epoch", asked(mark, 5, -3)


def add_partitions_to_txn(peer: RawPeer, version: int) -> Scenario:
    if version > 3:
        yield from _add_partitions_in_batches(peer, version)
        return
    topic = f"added-{version}"
    peer.create_topic(topic, partitions=3)
    owner = Owner(peer, f"adds-{version}")

    def add(*topics: tuple[str, list[int]], **fields: Any) -> Any:
        return owner.add(*topics, version=version, **fields)

    yield "unknown topic", add(("no-such-topic", [0]))
    yield "unknown partition", add((topic, [9]))
    yield "known and unknown", add((topic, [0, 9]), ("no-such-topic", [0]))
    yield "invalid topic", add(("a/b", [0]))
    yield "empty topic", add(("", [0]))
    yield "negative partition", add((topic, [-1]))
    yield "then", owner.described()
    yield "no topics", add()
    yield "then, after no topics", owner.described()
    yield "no partitions", add((topic, []))
    yield "one", add((topic, [1]))
    yield "one, again", add((topic, [1]))
    yield "two", add((topic, [0, 1]))
    yield "one twice", add((topic, [2, 2]))
    yield "topic twice", add((topic, [0]), (topic, [1]))
    yield "internal topic", add(("__consumer_offsets", [0]))
    yield "then, at the end", owner.described()
    for name in ("", "no-such-id"):
        yield f"transactional id {name!r}", add((topic, [0]), transactional_id=name)
    yield "producer id -1", add((topic, [0]), producer_id=-1)
    yield "producer epoch -1", add((topic, [0]), producer_epoch=-1)


def _add_partitions_in_batches(peer: RawPeer, version: int) -> Scenario:
    """Send AddPartitionsToTxn for several transactions at once, as brokers do.

    Some of the requests only verify partitions, and add none.
    """
    topic = f"added-{version}"
    peer.create_topic(topic, partitions=3)
    owner, other = Owner(peer, f"adds-{version}"), Owner(peer, f"adds-{version}-other")

    def ask(*rows: tuple[Owner, bool, list[int]], **fields: Any) -> Any:
        transactions = [
            {
                **who.fields,
                "verify_only": verify,
                "topics": [{"name": topic, "partitions": partitions}],
                **fields,
            }
            for who, verify, partitions in rows
        ]
        return peer.ask(ADD_PARTITIONS, version, {"transactions": transactions})

    yield "is it there: no", ask((owner, True, [0]))
    yield "add", ask((owner, False, [0]))
    yield "is it there: yes", ask((owner, True, [0]))
    yield "is another there", ask((owner, True, [0, 1]))
    yield "two transactions", ask((owner, True, [0]), (other, False, [1]))
    # No client sends the same transaction twice, or none; Kafka never answers the latter.
    yield "unknown partition", ask((owner, False, [9]))
    yield "unknown id", ask((owner, True, [0]), transactional_id="no-such-id")
    yield "no id", ask((owner, True, [0]), transactional_id="")
    yield "older epoch", ask((owner, True, [0]), producer_epoch=-1)
    yield "newer epoch", ask((owner, True, [0]), producer_epoch=9)
    yield "another producer", ask((owner, True, [0]), producer_id=88_000_000)


def add_offsets_to_txn(peer: RawPeer, version: int) -> Scenario:
    owner = Owner(peer, f"offsets-{version}")

    def add(group: str, **fields: Any) -> Any:
        return peer.ask(ADD_OFFSETS, version, owner.fields | {"group_id": group} | fields)

    yield "a group", add("group-of-nobody")
    yield "again", add("group-of-nobody")
    yield "empty group", add("")
    yield "then", owner.described()
    for name in ("", "no-such-id"):
        yield f"transactional id {name!r}", add("group-of-nobody", transactional_id=name)
    yield "producer id -1", add("group-of-nobody", producer_id=-1)


def end_txn(peer: RawPeer, version: int) -> Scenario:
    topic = f"ended-{version}"
    peer.create_topic(topic)
    owner = Owner(peer, f"ends-{version}")

    def end(is_commit: bool = True, **fields: Any) -> Any:
        values = owner.fields | {"committed": is_commit} | fields
        answer = peer.ask(END, version, values)
        owner.settle()
        return answer

    for name in ("", "no-such-id"):
        yield f"transactional id {name!r}", end(transactional_id=name)
    yield "producer id -1", end(producer_id=-1)
    owner.add((topic, [0]))
    owner.write(topic)
    yield "commit", end()
    yield "then", owner.described()


def txn_offset_commit(peer: RawPeer, version: int) -> Scenario:
    topic = f"txn-offsets-{version}"
    peer.create_topic(topic, partitions=2)
    owner = Owner(peer, f"txn-offsets-{version}")
    group = f"txn-group-{version}"

    def commit(*parts: tuple[int, int, str | None], name: str = topic, **fields: Any) -> Any:
        rows = [
            {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": metadata,
            }
            for index, offset, metadata in parts
        ]
        topic_id = peer.topic_ids.get(name, UNKNOWN_ID)
        topics = [{"name": name, "topic_id": topic_id, "partitions": rows}] if rows else []
        if "generation_id" in fields:
            fields["generation_id_or_member_epoch"] = fields["generation_id"]
        values = owner.fields | {"group_id": group, "topics": topics} | fields
        return peer.ask(TXN_OFFSET_COMMIT, version, values)

    def fetched(stable: bool) -> Any:
        wanted = [{"name": topic, "partition_indexes": [0, 1]}]
        values = {"group_id": group, "topics": wanted, "require_stable": stable}
        return peer.ask(FETCH_GROUP, 7, values)

    wait_for_coordinator(peer, 0, group)
    if version < 5:
        yield "not added", commit((0, 5, "m"))
        answer = peer.ask(ADD_OFFSETS, 3, owner.fields | {"group_id": group})
        assert answer["error_code"] == 0, answer
    yield "one", commit((0, 5, "m"))
    yield "two", commit((0, 6, ""), (1, 7, None))
    yield "one twice", commit((0, 6, ""), (0, 8, ""))
    yield "nothing", commit()
    yield "unknown topic", commit((0, 5, "m"), name="no-such-topic")
    yield "unknown partition", commit((9, 5, "m"))
    if version >= 6:
        peer.topic_ids["no id"] = bytes(16)
        yield "no id", commit((0, 5, "m"), name="no id")
    yield "negative offset", commit((0, -5, "m"))
    yield "metadata as long as may be", commit((0, 6, "m" * 4096))
    yield "metadata too long", commit((0, 6, "m" * 4097), (1, 9, "m"))
    for name in ("", "no-such-id"):
        yield f"transactional id {name!r}", commit((0, 5, "m"), transactional_id=name)
    yield "empty group", commit((0, 5, "m"), group_id="")
    yield "producer id -1", commit((0, 5, "m"), producer_id=-1)
    yield "older epoch", commit((0, 5, "m"), producer_epoch=-1)
    yield "newer epoch", commit((0, 5, "m"), producer_epoch=9)
    if version >= 3:
        yield "unknown member", commit((0, 5, "m"), member_id="somebody", generation_id=1)
        yield "unknown member, no generation", commit((0, 5, "m"), member_id="somebody")
        yield "generation, no member", commit((0, 5, "m"), generation_id=3)
        yield "unknown instance", commit((0, 5, "m"), group_instance_id="i")
    if version >= 5:
        new = {"group_id": f"txn-no-group-{version}", "generation_id": 3}
        yield "generation of a group that is not there", commit((0, 5, "m"), **new)
    yield "fetched, unstable", fetched(False)
    yield "fetched, stable", fetched(True)
    yield "abort", owner.end(False, 5 if version >= 5 else 3)
    _wait_until_stable(peer, group, topic)
    yield "fetched after the abort", fetched(True)
    other = Owner(peer, f"txn-offsets-{version}-committed")
    owner = other
    if version < 5:
        peer.ask(ADD_OFFSETS, 3, owner.fields | {"group_id": group})
    yield "to be committed", commit((0, 15, "m"), (1, 16, None))
    yield "commit", owner.end(True, 5 if version >= 5 else 3)
    _wait_until_stable(peer, group, topic)
    yield "fetched after the commit", fetched(True)


def _wait_until_stable(peer: RawPeer, group: str, topic: str) -> None:
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    values = {"group_id": group, "topics": wanted, "require_stable": True}

    def is_stable() -> bool:
        rows = peer.ask_raw(FETCH_GROUP, 7, values).topics
        errors = {part.error_code for row in rows for part in row.partitions}
        return ErrorCode.UNSTABLE_OFFSET_COMMIT not in errors

    until(is_stable, f"{group}: offsets stay unstable")
