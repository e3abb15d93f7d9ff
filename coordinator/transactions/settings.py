"""The configuration of the transaction coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """The settings of the transaction coordinator. See node.config.coordinator_keys for each key.

    The last four are limits of one shard, for waiting requests, ids, open transactions, and the
    partitions of one transaction (the limit of a Raft command).
    """

    shard_count: int = 4
    timeout_max_ms: int = 900_000
    timeout_scan_interval_ms: int = 1_000
    id_expiration_ms: int = 604_800_000
    id_scan_interval_ms: int = 3_600_000
    two_phase_commit_enabled: bool = False
    hold_ms: int = 500
    has_connection_fence: bool = True
    stale_request_ms: int = 5_000
    held_max: int = 2_000
    ids_max: int = 100_000
    open_max: int = 10_000
    partitions_max: int = 3_000
