"""Transaction requests of administrators and of other brokers, and FindCoordinator."""

from collections.abc import Iterator
from typing import Any

from ..raw_peer import RawPeer
from ..transactional_owner import Owner, in_order, wait_for_coordinator
from .log import batch

Scenario = Iterator[tuple[str, Any]]
FIND_COORDINATOR, ADD_OFFSETS, WRITE_MARKERS, DELETE_RECORDS = 10, 25, 27, 21
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66


def write_txn_markers(peer: RawPeer, version: int) -> Scenario:
    topic = f"markers-{version}"
    peer.create_topic(topic, partitions=6)
    pids = [peer.new_producer_id() for _ in range(3)]

    def mark(
        *wanted: tuple[str, list[int]], pid: int = pids[0], epoch: int = 0, commit: bool = True,
        coordinator_epoch: int = 0, transaction_version: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "producer_id": pid,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": t, "partition_indexes": p} for t, p in wanted],
            "coordinator_epoch": coordinator_epoch,
            "transaction_version": transaction_version,
        }

    def write(*markers: dict[str, Any]) -> Any:
        answer = peer.ask(WRITE_MARKERS, version, {"markers": list(markers)})
        answer["markers"].sort(key=repr)  # Kafka keeps them in a hash map by producer id
        return answer

    def producers(index: int) -> Any:
        return _producers(peer, (topic, [index]))

    yield "nothing", write()
    yield "no topics", write(mark())
    yield "without data", write(mark((topic, [0])))
    yield "without data, then", producers(0)
    yield "again", write(mark((topic, [0])))
    yield "abort after commit", write(mark((topic, [0]), commit=False))
    yield "newer epoch", write(mark((topic, [0]), epoch=4))
    yield "older epoch", write(mark((topic, [0]), epoch=3))
    yield "newer coordinator", write(mark((topic, [0]), epoch=4, coordinator_epoch=7))
    yield "older coordinator", write(mark((topic, [0]), epoch=4, coordinator_epoch=6))
    yield "older coordinator, newer epoch", write(mark((topic, [0]), epoch=9, coordinator_epoch=6))
    yield "then", producers(0)
    yield "unknown topic", write(mark(("no-such-topic", [0])))
    yield "unknown and known partition", write(mark((topic, [1, 9])))
    yield "two markers", write(mark((topic, [2])), mark((topic, [3]), pid=pids[1]))
    yield "one twice", write(mark((topic, [2])), mark((topic, [2])))
    yield "negative epoch", write(mark((topic, [4]), epoch=-1))
    yield "negative coordinator epoch", write(mark((topic, [4]), coordinator_epoch=-1))
    yield "negative producer", write(mark((topic, [4]), pid=-1))
    owner = Owner(peer, f"marked-{version}")
    owner.add((topic, [5]))
    records = batch(
        2, transactional=True, producer_id=owner.producer_id, base_sequence=0,
        producer_epoch=owner.producer_epoch,
    )  # fmt: skip
    yield (
        "open",
        peer.produce(11, topic, records, index=5, transactional_id=owner.name),
    )
    yield "open, then", producers(5)
    own = {"pid": owner.producer_id, "epoch": owner.producer_epoch}
    for strict in (2, 0) if version >= 2 else (0,):
        yield (
            f"V{strict}, equal epoch",
            write(mark((topic, [5]), **own, transaction_version=strict)),
        )
        yield f"V{strict}, equal epoch, then", producers(5)
    if version >= 2:
        raised = own | {"epoch": owner.producer_epoch + 1}
        for step in ("first", "again"):
            answer = write(mark((topic, [5]), **raised, transaction_version=2, commit=False))
            yield f"V2, raised epoch, {step}", answer
        yield "V2, raised epoch, then", producers(5)


def _producers(peer: RawPeer, *wanted: tuple[str, list[int]]) -> Any:
    rows = [{"name": name, "partition_indexes": indexes} for name, indexes in wanted]
    return peer.ask(DESCRIBE_PRODUCERS, 0, {"topics": rows})


def describe_producers(peer: RawPeer, version: int) -> Scenario:
    topic = f"producers-{version}"
    peer.create_topic(topic, partitions=3)
    pid = peer.new_producer_id()

    def producers(*wanted: tuple[str, list[int]]) -> Any:
        answer = _producers(peer, *wanted)
        for row in answer["topics"]:
            for partition in row["partitions"]:  # Kafka keeps producers in a hash map by their ids
                partition["active_producers"].sort(key=lambda one: one["producer_id"] != pid)
        return answer

    plain = batch(3, producer_id=pid, producer_epoch=0, base_sequence=0)
    yield "empty", producers((topic, [0]))
    peer.produce(9, topic, plain)
    yield "idempotent", producers((topic, [0, 1]))
    owner = Owner(peer, f"producers-{version}")
    owner.add((topic, [0]))
    owner.write(topic, 2)
    yield "open transaction", producers((topic, [0]))
    owner.end(True)
    yield "committed", producers((topic, [0]))
    owner.add((topic, [0]))
    owner.write(topic, 2, 2)
    owner.end(False)
    yield "aborted", producers((topic, [0]))
    yield "unknown partition", producers((topic, [9]))
    yield "unknown topic", producers(("no-such-topic", [0]))
    yield "invalid topic", producers(("a/b", [0]))
    yield "negative partition", producers((topic, [-1]))
    yield "one twice", producers((topic, [0, 0]))
    yield "nothing", producers()


def describe_transactions(peer: RawPeer, version: int) -> Scenario:
    topic = f"described-txn-{version}"
    peer.create_topic(topic, partitions=3)
    owner = Owner(peer, f"described-txn-{version}", 70_000)

    def describe(*names: str) -> Any:
        values = {"transactional_ids": list(names)}
        return in_order(peer.ask(DESCRIBE_TRANSACTIONS, version, values))

    yield "empty", describe(owner.name)
    owner.add((topic, [0, 2]))
    peer.ask(ADD_OFFSETS, 3, owner.fields | {"group_id": "group-of-nobody"})
    yield "open", describe(owner.name)
    owner.end(False)
    yield "aborted", describe(owner.name)
    owner.add((topic, [1]))
    owner.end(True)
    yield "committed", describe(owner.name)
    yield "unknown", describe("no-such-id")
    yield "empty name", describe("")
    yield "known and unknown", describe(owner.name, "no-such-id")
    yield "one twice", describe(owner.name, owner.name)
    yield "nothing", describe()


def list_transactions(peer: RawPeer, version: int) -> Scenario:
    mark = f"listed-{version}"
    topic = f"{mark}-topic"
    peer.create_topic(topic)
    opened, ended, idle = (Owner(peer, f"{mark}-{word}") for word in ("open", "ended", "idle"))
    opened.add((topic, [0]))
    ended.add((topic, [0]))
    ended.end(True)

    def listed(**fields: Any) -> Any:
        answer = peer.ask(LIST_TRANSACTIONS, version, fields)
        if isinstance(answer, dict):  # those of other scenarios are there too
            answer["transaction_states"] = [
                row
                for row in answer["transaction_states"]
                if row["transactional_id"].startswith(mark)
            ]
        return answer

    yield "all", listed()
    for states in (
        ["Ongoing"],
        ["Empty", "CompleteCommit"],
        ["Dead"],
        ["ongoing"],
        ["Nonsense"],
        [""],
    ):
        yield f"states {states}", listed(state_filters=states)
    yield "a good and a bad state", listed(state_filters=["Ongoing", "Nonsense"])
    yield "a producer", listed(producer_id_filters=[idle.producer_id])
    yield "no such producer", listed(producer_id_filters=[99_000_000, -1])
    yield (
        "a producer in a state",
        listed(producer_id_filters=[idle.producer_id], state_filters=["Ongoing"]),
    )
    if version >= 1:
        for duration in (-1, -5, 0, 3_600_000):
            yield f"longer than {duration}", listed(duration_filter=duration)
    if version >= 2:
        for pattern in (f"{mark}-.*", "", None, "nothing-like-it", "[", f"{mark}-open", "open"):
            yield f"pattern {pattern!r}", listed(transactional_id_pattern=pattern)
    opened.end(False)


def find_coordinator(peer: RawPeer, version: int) -> Scenario:
    for kind, key in ((0, "g"), (1, "t")):
        wait_for_coordinator(peer, kind, key)

    def find(kind: int, *keys: str) -> Any:
        values: dict[str, Any] = {"key_type": kind}
        values |= {"coordinator_keys": list(keys)} if version >= 4 else {"key": keys[0]}
        return peer.ask(FIND_COORDINATOR, version, values)

    for kind in (0, 1) if version else (0,):
        yield f"kind {kind}", find(kind, "g")
        yield f"kind {kind}, empty", find(kind, "")
        yield f"kind {kind}, a long key", find(kind, "k" * 3000)
        if version >= 4:
            yield f"kind {kind}, two", find(kind, "a", "b")
            yield f"kind {kind}, one twice", find(kind, "a", "a")
            yield f"kind {kind}, none", find(kind)
            yield f"kind {kind}, one empty", find(kind, "a", "")
    for kind in (3, -1, 127) if version else ():
        yield f"kind {kind}", find(kind, "g")


def internal_topics(peer: RawPeer, version: int) -> Scenario:
    """Read __consumer_offsets. Produce and DeleteRecords on it are refused."""
    name = "__consumer_offsets"
    wait_for_coordinator(peer, 0, "g")
    peer.learn(name, 4)
    yield "produce", peer.produce(version, name, batch())
    part = {"partition_index": 0, "offset": 0}
    values = {"topics": [{"name": name, "partitions": [part]}], "timeout": 5000}
    yield "delete records", peer.ask(DELETE_RECORDS, 2, values)
