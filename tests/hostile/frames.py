"""Requests like those of a client for every API and version, some of which are damaged.

Frames encoded with kio's schemas get past a broker's first checks. Two of five frames are damaged
afterwards.
"""

import random
import struct
from collections.abc import Sequence
from typing import Any

from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages.apis import APIS
from oncelog.wire.messages.schema import FIXED, Kind
from oncelog.wire.records import Record, encode_batch

from ..lying_batches import lying_batches
from ..wire.samples import Samples, sample_body
from .mutations import mutated

TOPICS = tuple(f"hostile-{number}" for number in range(4))
GROUPS, TRANSACTIONS = ("g-1", "g-2", "g-3"), ("t-1", "t-2", "t-3")
CONFIGS = ("retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "x")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
HURTS = (
    "",
    "a" * 255,
    "x" * 9_000,
    "\0",
    "a\nERROR b",
    "$(touch F)",
    "\ud7ff\U0010ffff",
    "__x",
    "..",
)
NUMBERS = (0, 1, -1, 2, 7, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
DAMAGED, POOL = 0.4, 4_000

_TEXTS: dict[str, Sequence[str]] = {
    "group_id": GROUPS,
    "groups_names": GROUPS,
    "groups": GROUPS,
    "transactional_id": TRANSACTIONS,
    "transactional_ids": TRANSACTIONS,
    "coordinator_keys": (*GROUPS, *TRANSACTIONS),
    "key": (*GROUPS, *TRANSACTIONS, *QUOTAS, *QUOTAS),
    "entity_name": ("alice", "h"),
    "match": ("alice", "h"),
    "group_ids": GROUPS,
    "group_instance_id": ("i-1",),
    "instance_id": ("i-1",),
    "protocol_name": ("range", "consumer"),
    "server_assignor": ("uniform", "range"),
    "states_filter": ("Stable", "Empty"),
    "transactional_id_pattern": ("t-.*", "(a|a)*b", "("),
    "resource_name": (*TOPICS, "1", "2", "", *GROUPS),
    "feature": ("transaction.version", "group.version", "metadata.version"),
    "member_id": ("", "m-1", "m-2"),
    "config_name": CONFIGS,
    "configuration_keys": CONFIGS,
    "name": (*TOPICS, *TOPICS, *CONFIGS, *GROUPS, "consumer", "range"),
    "protocol_type": ("consumer",),
    "mechanism": ("PLAIN", "SCRAM-SHA-512"),
    "principal": ("User:alice", "User:*", "alice"),
    "principal_filter": ("User:alice", "User:*"),
    "host": ("*", "127.0.0.1"),
    "value": ("compact", "delete", "-1", "60000", "1e9"),
    "subscribed_topic_regex": ("hostile.*", "(a|a)*b", "(", "[[:alpha:]]{1,900}"),
    "entity_type": ("user", "client-id", "ip"),
    "user": ("alice", "bob"),
}
_NUMBERS: dict[str, Sequence[int]] = {
    "num_partitions": (1, 2, -1, 0),
    "count": (2, 3, 0, -5),
    "replication_factor": (1, -1, 0),
    "partition_index": (0, 1, 2, -1),
    "partition": (0, 1, -1),
    "partition_id": (0, 1, -1),
    "partitions": (0, 1, 5),
    "partition_indexes": (0, 1, 5),
    "timeout": (0, 5, 100),
    "max_wait": (0, 10),
    "session_timeout": (6_000, 10_000),
    "rebalance_timeout": (1_000, 60_000),
    "transaction_timeout": (60_000, 1_000),
    "current_leader_epoch": (-1, 0, 1),
    "leader_epoch": (-1, 0, 1),
    "fetch_offset": (0, 1, 5),
    "offset": (0, 1, 3),
    "timestamp": (-1, -2, -3, 0, 1_700_000_000_000),
    "max_bytes": (1 << 20, 1_000),
    "partition_max_bytes": (1 << 20, 1_000),
    "isolation_level": (0, 1),
    "session_id": (0,),
    "session_epoch": (-1, 0, 1),
    "generation_id": (-1, 0, 1),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "key_type": (0, 1),
    "match_type": (0, 1, 2),
    "config_operation": (0, 1, 2, 3),
    "resource_type_filter": (1, 2, 3),
    "pattern_type_filter": (1, 3),
    "replicas": (1, 2, 3),
    "replica_id": (-1, -1, -2, 1),
    "acks": (-1, 0, 1, 2),
    "resource_type": (2, 3, 4, 5, 0),
    "resource_pattern_type": (3, 4, 1),
    "pattern_type": (3, 4, 2),
    "permission_type": (3, 3, 2),
    "operation": (2, 3, 4, 8),
    "member_epoch": (0, -1, -2, 1),
    "producer_epoch": (0, 1, -1),
    "iterations": (4096, 16384, 1),
}


class Plausible(Samples):
    """Generated field values.

    Texts, and numbers with a known name, fit the field's name, but one of eight is an edge case.
    Other numbers are mostly edge cases.
    """

    def __init__(
        self, seed: int, topic_ids: Sequence[bytes], batches: Sequence[bytes], ids: Sequence[int]
    ) -> None:
        """Use `ids` as the producer ids."""
        super().__init__(seed)
        self._topic_ids, self._batches = topic_ids, batches
        self._numbers = {**_NUMBERS, "producer_id": (*ids, *ids, 0, -1)}

    def _one(self, kind: Kind) -> Any:
        chance = self.random
        if kind.entity is not None:
            return self.of_schema(kind.entity)
        match kind.wire_type:
            case "string":
                known = _TEXTS.get(kind.name, TOPICS)
                return chance.choice(HURTS if chance.random() < 0.12 else known)
            case "records":
                return chance.choice(self._batches)
            case "bytes":
                return chance.choice(self._batches)[-chance.randrange(1, 200) :]
            case "uuid":
                return chance.choice((*self._topic_ids, bytes(16), chance.randbytes(16)))
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.choice((1e6, 1e-7, 5e-324, 0.0, -1.0, float("nan"), float("inf")))
            case wire_type:
                known = self._numbers.get(kind.name)
                if known is not None and chance.random() > 0.12:
                    return chance.choice(known)
                code = FIXED[wire_type]
                bits = 8 * struct.calcsize(code) - code.islower()
                least = -(1 << bits) if code.islower() else 0
                return max(least, min((1 << bits) - 1, chance.choice(NUMBERS)))


class FrameMaker:
    """A generator of request frames. It renews its pool of bodies slowly."""

    def __init__(
        self, rng: random.Random, served: Sequence[tuple[int, int]], topic_ids: Sequence[bytes],
        ids: Sequence[int], now_ms: int,
    ) -> None:  # fmt: skip
        """Use the APIs and versions of `served`, and the producer ids `ids`."""
        records = [Record(number, now_ms + number, b"k", b"v" * 50) for number in range(3)]
        good = [encode_batch(records, compression=codec) for codec in range(5)]
        written = [
            encode_batch(records, producer_id=each, producer_epoch=0, base_sequence=at, **more)
            for each in ids
            for at in (0, 3)
            for more in ({}, {"transactional": True})
        ]
        batches = (*good, *written, *(lie.data for lie in lying_batches(now_ms)))
        self._rng, self._served = rng, served
        self._samples = Plausible(rng.getrandbits(32), topic_ids, batches, ids)
        self._pool: list[tuple[tuple[int, int], bytes]] = []

    def make(self) -> bytes:
        """Return a request frame, with its length, of a random API and version."""
        rng, pool = self._rng, self._pool
        if len(pool) < POOL or rng.random() < 0.1:
            api = self._served[len(pool) % len(self._served)]
            if len(pool) >= POOL:
                api = rng.choice(self._served)
            drawn = (api, sample_body(*api, "request", self._samples))
            if len(pool) < POOL:
                pool.append(drawn)
            else:
                pool[rng.randrange(POOL)] = drawn
        else:
            drawn = rng.choice(pool)
        (key, version), body = drawn
        head = encode_request_header(key, version, rng.getrandbits(31), rng.choice(("h", *HURTS)))
        request = head + body
        is_damaged = rng.random() < DAMAGED
        if is_damaged:
            start = 0 if rng.random() < 0.1 else len(head)
            request = request[:start] + mutated(rng, request[start:])
        size = len(request)
        if is_damaged and rng.random() < 0.02:
            size = rng.choice((0, -1, size - 1, size + 1, 2**31 - 1)) & 0xFFFFFFFF
        return size.to_bytes(4, "big") + request


def served_of(answer: Any) -> list[tuple[int, int]]:
    """Return each API and version in an answer to ApiVersions for which kio has a schema."""
    return [
        (row.api_key, version)
        for row in answer.api_keys
        if row.api_key in APIS
        for version in range(
            max(row.min_version, APIS[row.api_key].oldest),
            min(row.max_version, APIS[row.api_key].newest) + 1,
        )
    ]
