"""Requests for changes that oncelog does not support, or that Kafka refuses without security."""

import time
from collections.abc import Iterator
from typing import Any

from oncelog.wire.errors import ErrorCode

from ..raw_peer import RawPeer
from ..transactional_owner import ADD_PARTITIONS, Owner, wait_for_coordinator

Scenario = Iterator[tuple[str, Any]]
LOG_DIRS, DESCRIBE_LOG_DIRS, CLUSTER = 34, 35, 60
CREATE, RENEW, EXPIRE, DESCRIBE = 38, 39, 40, 41
FEATURES, UNREGISTER, ADD_VOTER, REMOVE_VOTER = 57, 64, 80, 81
UNREGISTER_CONTROLLER = 94
HEARTBEAT, GROUP_DESCRIBE = 68, 69
END_TXN, TXN_OFFSET_COMMIT = 26, 28
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
APPLIED_S = 30.0


def alter_replica_log_dirs(peer: RawPeer, version: int) -> Scenario:
    topic = f"moved-{version}"
    peer.create_topic(topic, partitions=2)
    (described,) = peer.ask_raw(DESCRIBE_LOG_DIRS, 1, {"topics": []}).results
    both = [
        {"name": topic, "partitions": [1, 0, 7]},
        {"name": "no-such-topic", "partitions": [0]},
    ]

    def move(*paths: str, topics: Any = both) -> Any:
        dirs = [{"path": path, "topics": topics} for path in paths]
        answer = peer.ask(LOG_DIRS, version, {"dirs": dirs})
        for row in answer["results"]:
            row["partitions"].sort(key=lambda each: each["partition_index"])
        return answer

    own = described.log_dir
    yield "its own directory", move(own)
    yield "another directory", move("/no/such/directory")
    yield "no directory", move("")
    yield "a relative one", move("relative")
    yield "first here, then there", move(own, "/no/such/directory")
    yield "first there, then here", move("/no/such/directory", own)
    yield "no topics", move(own, topics=[])
    yield "nothing", move()


def delegation_tokens(peer: RawPeer, version: int) -> Scenario:
    renewers = [{"principal_type": "User", "principal_name": "a"}]
    yield "create", peer.ask(CREATE, version, {"renewers": renewers, "max_lifetime": -1})
    yield "create, of nobody", peer.ask(CREATE, version, {"renewers": [], "max_lifetime": 1})
    for owners in (None, [], [{"principal_type": "User", "principal_name": "a"}]):
        yield f"describe {owners}", peer.ask(DESCRIBE, version, {"owners": owners})
    if version <= 2:
        yield "renew", peer.ask(RENEW, version, {"hmac": b"x", "renew_period": 1})
        yield "expire", peer.ask(EXPIRE, version, {"hmac": b"x", "expiry_time_period": -1})


def update_features(peer: RawPeer, version: int) -> Scenario:
    def update(
        *levels: tuple[str, int], validate_only: bool = True, upgrade_type: int = UPGRADE
    ) -> Any:
        lowers = {"allow_downgrade": upgrade_type != UPGRADE} if version == 0 else {}
        rows = [
            {
                "feature": name,
                "max_version_level": level,
                "upgrade_type": upgrade_type,
                **lowers,
            }
            for name, level in levels
        ]
        values = {"feature_updates": rows, "timeout": 5_000, "validate_only": validate_only}
        return peer.ask(FEATURES, version, values)

    yield "nothing", update()
    yield "as it is", update(("transaction.version", 2))
    yield "both as they are", update(("transaction.version", 2), ("group.version", 1))
    yield "as it is, done", update(("group.version", 1), validate_only=False)
    yield "lower", update(("transaction.version", 1))
    yield "higher than there is", update(("group.version", 9))
    yield "below zero", update(("group.version", -1))
    yield "unknown", update(("no.such.feature", 1))
    yield "one good, one bad", update(("group.version", 1), ("no.such.feature", 1))
    if version == 0:
        return  # it cannot only validate, and kraft.version never falls again
    yield "kraft.version", update(("kraft.version", 1))
    yield "kraft.version, too high", update(("kraft.version", 2))
    yield "of no type", update(("group.version", 0), upgrade_type=0)
    yield "of an unknown type", update(("group.version", 0), upgrade_type=9)
    for upgrade_type in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        case = f"type {upgrade_type}"
        yield f"{case}, as it is", update(("group.version", 1), upgrade_type=upgrade_type)
        yield f"{case}, lower", update(("transaction.version", 0), upgrade_type=upgrade_type)
        for level in (0, 1):
            row = "kraft.version", level
            yield f"{case}, {row}", update(row, upgrade_type=upgrade_type)
    lower = ("group.version", 0), ("transaction.version", 0)
    yield "down", update(*lower, validate_only=False, upgrade_type=SAFE_DOWNGRADE)
    member = {"group_id": "g", "member_id": "m", "member_epoch": 0}
    end_s = time.monotonic() + APPLIED_S  # Kafka's broker applies the level after its answer
    while time.monotonic() < end_s:
        if peer.ask_raw(HEARTBEAT, 1, member).error_code == ErrorCode.UNSUPPORTED_VERSION:
            break
        time.sleep(0.05)
    yield "no consumer groups", peer.ask(HEARTBEAT, 1, member)
    yield "none described", peer.ask(GROUP_DESCRIBE, 1, {"group_ids": ["g", ""]})
    yield from _older_transactions(peer, version)
    higher = ("group.version", 1), ("transaction.version", 2)
    yield "up by a downgrade", update(*higher, upgrade_type=SAFE_DOWNGRADE)
    yield "up", update(*higher, validate_only=False)


def _older_transactions(peer: RawPeer, version: int) -> Scenario:
    """Send requests of transaction versions 1 and 2 to a cluster of transaction version 1.

    Each case has its own transactional id, since Kafka treats an id as busy after a refusal.
    """
    topic = f"older-transactions-{version}"
    peer.create_topic(topic, 2)

    def begun(case: str, *partitions: int) -> Owner:
        owner = Owner(peer, f"{case}-{topic}")
        if partitions:
            assert not owner.add((topic, list(partitions)))["throttle_time"]
        return owner

    owner = begun("older", 0)
    yield "an older write", owner.write(topic)
    yield "an older end", owner.end(True)
    yield "a newer write", (owner := begun("write")).write(topic, version=12)
    yield "after a newer write", owner.described()
    yield (
        "a newer write where an older request has added",
        begun("mixed", 1).write(topic, version=12),
    )
    for case, is_commit, partitions in (
        ("commit", True, (0,)),
        ("abort", False, (0,)),
        ("commit of nothing", True, ()),
        ("abort of nothing", False, ()),
    ):
        owner = begun(case, *partitions)
        yield f"a newer {case}", peer.ask(END_TXN, 5, owner.fields | {"committed": is_commit})
        yield f"after a newer {case}", owner.described()
    owner = begun("batch")
    row = {"verify_only": False, "topics": [{"name": topic, "partitions": [0]}], **owner.fields}
    yield "a newer addition", peer.ask(ADD_PARTITIONS, 4, {"transactions": [row]})
    group = f"older-{version}"
    wait_for_coordinator(peer, 0, group)
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    offsets = {
        "group_id": group,
        "generation_id": -1,
        "topics": [{"name": topic, "partitions": [offset]}],
        **begun("offsets").fields,
    }
    yield "newer offsets", peer.ask(TXN_OFFSET_COMMIT, 5, offsets)


def unregister_broker(peer: RawPeer, version: int) -> Scenario:
    for broker_id in (9, -1, 2**31 - 1):
        yield f"broker {broker_id}", peer.ask(UNREGISTER, version, {"broker_id": broker_id})


def raft_voters(peer: RawPeer, version: int) -> Scenario:
    own = peer.ask_raw(CLUSTER, 0, {}).cluster_id
    listeners = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]
    for case, cluster_id in (("own", own), ("no", None), ("another", "x"), ("empty", "")):
        voter = {"cluster_id": cluster_id, "voter_id": 9, "voter_directory_id": b"d" * 16}
        added = voter | {"timeout": 1_000, "listeners": listeners}
        yield f"add, {case} cluster", peer.ask(ADD_VOTER, version, added)
        yield f"remove, {case} cluster", peer.ask(REMOVE_VOTER, 0, voter)
    nowhere = {"cluster_id": own, "timeout": 1_000, "voter_id": 9, "voter_directory_id": b"d" * 16}
    yield "add, without a listener", peer.ask(ADD_VOTER, version, nowhere | {"listeners": []})


def unregister_controller(peer: RawPeer, version: int) -> Scenario:
    """Unregister controllers that do not exist, and the only controller of the cluster."""
    for number in (9, -1, 2**31 - 1, 1):
        values = {"controller_id": number}
        yield f"controller {number}", peer.ask(UNREGISTER_CONTROLLER, version, values)
