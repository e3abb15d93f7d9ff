"""The operations of a load and their rate, saved as JSON for a repetition."""

from dataclasses import dataclass
from typing import Any

COMPRESSIONS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
APPEND, OUTPUTS, BANK = "append", "outputs", "bank"
JOB, READERS = GROUPS = ("job", "readers")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The settings of a load, with times in ms of the event loop, and probabilities.

    The shares are probabilities for one operation, or for one new client.
    """

    append_partitions: int = 6
    # as many as append_partitions, since the order is kept from one to the other
    output_partitions: int = 6
    bank_partitions: int = 4
    replication_factor: int = 3
    group: str = JOB
    readers: str = READERS  # the group whose members commit plainly
    consumer_groups: tuple[str, ...] = ()  # those of both that speak the newer protocol (KIP-848)
    records_per_send_max: int = 8
    steps_max: int = 4  # sends and polls of one transaction
    filler_bytes_max: int = 120
    pause_ms: int = 20  # on average, between two operations of one client
    poll_ms: int = 50
    fetch_min_bytes: int = 1_024  # a single record does not wake every reader
    fetch_wait_ms: int = 250
    job_records_max: int = 200  # inputs of one transaction of the job
    abort_share: float = 0.1
    reassign_share: float = 1 / 64
    stolen_share: float = 1 / 4  # share of new clients that use another client's transactional id
    life_ms_max: int = 12_000  # longest lifetime of a client, until a new one replaces it
    behind_max: int = 200  # how many records before the end a new reader begins
    request_timeout_ms: int = 2_500
    patience_ms: int = 6_000  # for one call, and for the delivery of a record
    patient_share: float = 0.25  # share of clients of `append` that wait longer than brokers do
    patient_ms: int = 25_000
    transaction_timeout_ms: int = 5_000
    session_timeout_ms: int = 3_000
    assignor: str = "range"  # of the members of groups with the classic protocol
    visitors: int = 0  # further members of each consumer group in a process that stay briefly
    visit_ms_max: int = 2_000
    # as pause_ms; a member that polls seldom takes and revokes partitions late
    visit_pause_ms: int = 200
    static_share: float = 0.25  # share of the job's members that are static (KIP-345)
    v1_share: float = 0.25  # share of transactional clients that use the protocol before KIP-890

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "LoadSettings":
        groups = tuple(values.get("consumer_groups", ()))
        return cls(**{**values, "consumer_groups": groups})

    def protocol_of(self, group: str) -> str:
        """Return the `group.protocol` of a group's members."""
        return "consumer" if group in self.consumer_groups else "classic"

    @property
    def topics(self) -> dict[str, int]:
        return {
            APPEND: self.append_partitions,
            OUTPUTS: self.output_partitions,
            BANK: self.bank_partitions,
        }
