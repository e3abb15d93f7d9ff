"""Kafka's APIs, with key, name, kio's schema, known versions, and the first flexible version."""

from typing import NamedTuple

NEVER = 1 << 15


class ApiSchema(NamedTuple):
    """An API. `flexible_from` is the first version with compact types and tags (KIP-482)."""

    name: str
    module: str
    oldest: int
    newest: int
    flexible_from: int


_CLIENT_APIS = (
    (0, "produce", 3, 13, 9),
    (1, "fetch", 4, 18, 12),
    (2, "list_offsets", 1, 11, 6),
    (3, "metadata", 0, 13, 9),
    (8, "offset_commit", 2, 10, 8),
    (9, "offset_fetch", 1, 10, 6),
    (10, "find_coordinator", 0, 6, 3),
    (11, "join_group", 0, 9, 6),
    (12, "heartbeat", 0, 4, 4),
    (13, "leave_group", 0, 5, 4),
    (14, "sync_group", 0, 5, 4),
    (15, "describe_groups", 0, 6, 5),
    (16, "list_groups", 0, 5, 3),
    (17, "sasl_handshake", 0, 1, NEVER),
    (18, "api_versions", 0, 5, 3),
    (19, "create_topics", 2, 7, 5),
    (20, "delete_topics", 1, 6, 4),
    (21, "delete_records", 0, 2, 2),
    (22, "init_producer_id", 0, 6, 2),
    (23, "offset_for_leader_epoch", 2, 4, 4),
    (24, "add_partitions_to_txn", 0, 5, 3),
    (25, "add_offsets_to_txn", 0, 4, 3),
    (26, "end_txn", 0, 5, 3),
    (27, "write_txn_markers", 1, 2, 1),
    (28, "txn_offset_commit", 0, 6, 3),
    (29, "describe_acls", 1, 3, 2),
    (30, "create_acls", 1, 3, 2),
    (31, "delete_acls", 1, 3, 2),
    (32, "describe_configs", 1, 4, 4),
    (33, "alter_configs", 0, 2, 2),
    (34, "alter_replica_log_dirs", 1, 2, 2),
    (35, "describe_log_dirs", 1, 5, 2),
    (36, "sasl_authenticate", 0, 2, 2),
    (37, "create_partitions", 0, 3, 2),
    (38, "create_delegation_token", 1, 3, 2),
    (39, "renew_delegation_token", 1, 2, 2),
    (40, "expire_delegation_token", 1, 2, 2),
    (41, "describe_delegation_token", 1, 3, 2),
    (42, "delete_groups", 0, 3, 2),
    (43, "elect_leaders", 0, 2, 2),
    (44, "incremental_alter_configs", 0, 1, 1),
    (45, "alter_partition_reassignments", 0, 1, 0),
    (46, "list_partition_reassignments", 0, 0, 0),
    (47, "offset_delete", 0, 0, NEVER),
    (48, "describe_client_quotas", 0, 1, 1),
    (49, "alter_client_quotas", 0, 1, 1),
    (50, "describe_user_scram_credentials", 0, 0, 0),
    (51, "alter_user_scram_credentials", 0, 0, 0),
    (55, "describe_quorum", 0, 2, 0),
    (57, "update_features", 0, 2, 0),
    (60, "describe_cluster", 0, 2, 0),
    (61, "describe_producers", 0, 0, 0),
    (64, "unregister_broker", 0, 0, 0),
    (65, "describe_transactions", 0, 0, 0),
    (66, "list_transactions", 0, 2, 0),
    (68, "consumer_group_heartbeat", 0, 1, 0),
    (69, "consumer_group_describe", 0, 1, 0),
    (71, "get_telemetry_subscriptions", 0, 0, 0),
    (72, "push_telemetry", 0, 0, 0),
    (74, "list_config_resources", 0, 1, 0),
    (75, "describe_topic_partitions", 0, 0, 0),
    (76, "share_group_heartbeat", 1, 1, 1),
    (77, "share_group_describe", 1, 1, 1),
    (78, "share_fetch", 1, 2, 1),
    (79, "share_acknowledge", 1, 2, 1),
    (80, "add_raft_voter", 0, 1, 0),
    (81, "remove_raft_voter", 0, 0, 0),
    (83, "initialize_share_group_state", 0, 0, 0),
    (84, "read_share_group_state", 0, 0, 0),
    (85, "write_share_group_state", 0, 1, 0),
    (86, "delete_share_group_state", 0, 0, 0),
    (87, "read_share_group_state_summary", 0, 1, 0),
    (88, "streams_group_heartbeat", 0, 1, 0),
    (89, "streams_group_describe", 0, 1, 0),
    (90, "describe_share_group_offsets", 0, 1, 0),
    (91, "alter_share_group_offsets", 0, 0, 0),
    (92, "delete_share_group_offsets", 0, 0, 0),
    (93, "streams_group_topology_description_update", 0, 0, 0),
    (94, "unregister_controller", 0, 0, 0),
)
APIS: dict[int, ApiSchema] = {
    key: ApiSchema(
        "".join(part.capitalize() for part in module.split("_")), module, oldest, newest, flexible
    )
    for key, module, oldest, newest, flexible in _CLIENT_APIS
}
# The messages that kio lacks: see `added`.
ADDED = frozenset({(18, 5), (28, 6), (42, 3), (85, 1), (88, 1), (89, 1), (93, 0), (94, 0)})
FLEXIBLE_FROM: dict[int, int] = {key: api.flexible_from for key, api in APIS.items()}
API_NAMES: dict[int, str] = {key: api.name for key, api in APIS.items()}


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether this version of an API uses compact types and tags."""
    api = APIS.get(api_key)
    return api is not None and version >= api.flexible_from
