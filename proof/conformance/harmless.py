"""For each API, a request that changes nothing on any cluster.

Such a request has an unused name, an empty list, or a read instead of a change.
`tests/proof/conformance` compares the topics and groups of a cluster before and after. Fields that
a version lacks are left out, and fields without a value here have the schema's default.
"""

from collections.abc import Mapping
from typing import Any

from ...wire.messages.fetch import FetchRequest
from ...wire.messages.produce import ProduceRequest

NOBODY = -1
NO_ID = bytes(16)
ANY = 1  # of ACL filters
ELSEWHERE_CLUSTER = "no-such-cluster"
NEEDS_OFFSETS_TOPIC = frozenset({(10, 0)})  # FindCoordinator creates a missing topic
_NO_GROUP: dict[str, Any] = {"group_id": ""}
_NO_TRANSACTION: dict[str, Any] = {"transactional_id": "", "producer_id": NOBODY}
_NO_VOTER: dict[str, Any] = {"cluster_id": ELSEWHERE_CLUSTER, "voter_id": NOBODY}
_NOTHING_ACKNOWLEDGED: dict[str, Any] = {
    **_NO_GROUP,
    "member_id": "",
    "share_session_epoch": NOBODY,  # ends a session that does not exist; 0 would open one
    "topics": [],
}

HARMLESS: Mapping[int, Any] = {
    0: ProduceRequest(None, -1, 1_000, []),
    1: FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]),
    2: {"replica_id": NOBODY, "topics": []},
    3: {"topics": [], "allow_auto_topic_creation": False},  # version 0: all topics
    8: {**_NO_GROUP, "topics": []},
    9: {**_NO_GROUP, "topics": [], "groups": []},
    10: {"key": "", "key_type": 99, "coordinator_keys": []},
    11: {
        **_NO_GROUP,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    },
    12: {**_NO_GROUP, "generation_id": NOBODY},
    13: {**_NO_GROUP, "members": []},
    14: {**_NO_GROUP, "generation_id": NOBODY, "assignments": []},
    15: {"groups": []},
    16: {},
    17: {"mechanism": ""},
    18: {"client_software_name": "oncelog", "client_software_version": "1"},
    19: {"topics": [], "timeout": 1_000, "validate_only": True},
    20: {"topics": [], "topic_names": [], "timeout": 1_000},
    21: {"topics": [], "timeout": 1_000},
    22: {"transactional_id": "", "transaction_timeout": 1_000},
    23: {"replica_id": NOBODY, "topics": []},
    24: {
        "transactions": [{**_NO_TRANSACTION, "verify_only": True, "topics": []}],
        "v3_and_below_transactional_id": "",
        "v3_and_below_producer_id": NOBODY,
        "v3_and_below_producer_epoch": NOBODY,
        "v3_and_below_topics": [],
    },
    25: {**_NO_TRANSACTION, **_NO_GROUP},
    26: {**_NO_TRANSACTION, "committed": False},
    27: {"markers": []},
    28: {**_NO_TRANSACTION, **_NO_GROUP, "topics": []},
    29: {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "operation": ANY,
        "permission_type": ANY,
    },
    30: {"creations": []},
    31: {"filters": []},
    32: {"resources": []},
    33: {"resources": [], "validate_only": True},
    34: {"dirs": []},
    35: {"topics": []},
    36: {"auth_bytes": b""},
    37: {"topics": [], "timeout": 1_000, "validate_only": True},
    38: {"renewers": [{"principal_type": "Nobody", "principal_name": "-"}], "max_lifetime": 1},
    39: {"hmac": b"", "renew_period": 1},
    40: {"hmac": b"", "expiry_time_period": 1},
    41: {"owners": []},
    42: {"groups_names": []},
    43: {"topic_partitions": [], "timeout": 1_000},
    44: {"resources": [], "validate_only": True},
    45: {"topics": [], "timeout": 1_000},
    46: {"topics": [], "timeout": 1_000},
    47: {**_NO_GROUP, "topics": []},
    48: {"components": [], "strict": True},
    49: {"entries": [], "validate_only": True},
    50: {"users": []},
    51: {"deletions": [], "upsertions": []},
    55: {"topics": []},
    57: {"feature_updates": [], "timeout": 1_000, "validate_only": True},
    60: {},
    61: {"topics": []},
    64: {"broker_id": NOBODY},
    65: {"transactional_ids": []},
    66: {"state_filters": [], "producer_id_filters": []},
    68: {**_NO_GROUP, "member_id": ""},
    69: {"group_ids": []},
    71: {"client_instance_id": NO_ID},  # with any id, the broker remembers a client for a while
    72: {"client_instance_id": NO_ID, "subscription_id": NOBODY, "metrics": b""},
    74: {"resource_types": []},
    75: {"topics": [], "response_partition_limit": 1},
    76: {**_NO_GROUP, "member_id": ""},
    77: {"group_ids": []},
    78: {**_NOTHING_ACKNOWLEDGED, "forgotten_topics_data": []},
    79: _NOTHING_ACKNOWLEDGED,
    80: {**_NO_VOTER, "timeout": 1_000, "listeners": []},
    81: _NO_VOTER,
    83: {**_NO_GROUP, "topics": []},
    84: {**_NO_GROUP, "topics": []},
    85: {**_NO_GROUP, "topics": []},
    86: {**_NO_GROUP, "topics": []},
    87: {**_NO_GROUP, "topics": []},
    88: {**_NO_GROUP, "member_id": ""},
    89: {"group_ids": []},
    90: {"groups": []},
    91: {**_NO_GROUP, "topics": []},
    92: {**_NO_GROUP, "topics": []},
    93: {
        **_NO_GROUP,
        "member_id": "",
        "topology_epoch": NOBODY,
        "topology_description": {"subtopologies": [], "global_stores": []},
    },
    94: {"controller_id": NOBODY},
}
