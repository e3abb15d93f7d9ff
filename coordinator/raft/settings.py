"""The limits and timeouts of the Raft engine, as one validated, immutable value."""

from dataclasses import dataclass

VOTER_COUNTS = (1, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """The settings, with all durations in milliseconds of the monotonic clock.

    The election timeout must exceed several heartbeats, or one delayed heartbeat would start an
    election (Ongaro's thesis, 3.9). Every queue, message and file has a limit here.
    """

    heartbeat_interval_ms: int = 150
    election_timeout_min_ms: int = 600
    election_timeout_max_ms: int = 1_200
    # The random spread of candidates after the leader's link was closed.
    suspicion_timeout_max_ms: int = 40
    census_interval_ms: int = 100
    transfer_timeout_ms: int = 1_000
    preferred_leader_delay_ms: int = 3_000
    first_leader_delay_ms: int = 0  # the same as above, while the group has decided nothing

    command_bytes_max: int = 1 << 20
    pending_commands_max: int = 50_000
    append_bytes_max: int = 64 << 10  # for one message; a single larger command is sent alone
    in_flight_bytes_max: int = 512 << 10  # to one follower, about 10 ms of work for both
    frame_bytes_max: int = 512 << 10
    apply_batch_max: int = 256  # commands applied before the event loop gets a turn

    segment_bytes: int = 8 << 20
    # Above this number a group that pins the oldest segment writes a snapshot.
    segments_max: int = 6
    snapshot_entries: int = 20_000
    snapshot_log_bytes: int = 16 << 20
    retained_entries: int = 2_000  # kept before a snapshot for followers that are slightly behind
    snapshot_chunk_bytes: int = 256 << 10
    snapshot_bytes_max: int = 1 << 30

    def lead_delay_ms(self, has_decided: bool) -> int:
        """Return how long a peer must be up before it gets the leadership of a group.

        Clients notice a new leader if the group has applied commands (`has_decided`), so the time
        is then longer. For example, a coordinator closes connections that are older than its
        election (`transactions/connection_fence.py`).
        """
        return self.preferred_leader_delay_ms if has_decided else self.first_leader_delay_ms

    def __post_init__(self) -> None:
        if self.heartbeat_interval_ms < 1:
            raise ValueError("heartbeat_interval_ms must be at least 1")
        if self.election_timeout_min_ms < 3 * self.heartbeat_interval_ms:
            raise ValueError("election_timeout_min_ms must be at least three heartbeat intervals")
        if self.election_timeout_max_ms <= self.election_timeout_min_ms:
            raise ValueError("election_timeout_max_ms must exceed election_timeout_min_ms")
        if self.segment_bytes < 2 * self.command_bytes_max + 4096:
            raise ValueError("a segment must hold at least two commands of the largest size")


def check_voters(node_id: int, voters: tuple[int, ...]) -> None:
    """Raise ValueError, which says what the operator must change, for invalid voters."""
    if len(set(voters)) != len(voters) or node_id not in voters:
        raise ValueError(f"node {node_id} must be listed exactly once among the voters {voters}")
    if len(voters) == 2:
        raise ValueError(
            "two voters have no majority without each other, so either's death stops the cluster: "
            "use one node, or three and more"
        )
    if len(voters) not in VOTER_COUNTS:
        raise ValueError(f"a cluster has 1, 3, 4 or 5 voters, not {len(voters)}")
    if not all(0 <= voter < 1 << 31 for voter in voters):
        raise ValueError("node ids are non-negative 32-bit integers")
