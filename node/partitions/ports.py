"""Who acts on what happens to the replicas: nothing until the broker has registered, then each is
its subclass.
"""

from collections.abc import Iterable

from .hosted_partition import HostedPartition


class Followers:
    """`follower_service.FollowerService`: answers the polls of other brokers."""

    def appended(self, partitions: Iterable[HostedPartition]) -> None:
        """Logs that we lead have grown: once per turn of the event loop."""

    def offsets_moved(self, partition: HostedPartition) -> None:
        """The high watermark of a partition that we lead has risen, or its log start offset."""

    def role_changed(self, partition: HostedPartition) -> None:
        """We lead it now, or no longer."""


class InSyncReplicas:
    """`isr_proposer.IsrProposer`: proposes ISR changes."""

    def isr_may_change(self, partition: HostedPartition) -> None:
        """Look at this partition soon."""

    def look_at_unsettled(self) -> None:
        """A broker came or went."""


class FailedLogs:
    """`storage_failures.StorageFailures`: tells the controller."""

    def report(self, topic_id: bytes, index: int) -> None:
        """The log failed, or could not be opened: others must lead this partition."""

    def withdraw(self, topic_id: bytes, index: int) -> None:
        """It could be opened after all: a report that comes late would take it out."""


class DiskReport:
    """`storage_failures.DiskTrouble`: tells people. words: what the disk refuses now."""

    words = ""

    def note(self, error: BaseException, *, is_log_lost: bool = False) -> None:
        """A write was refused, by the disk if `error` or its cause is an OSError."""

    async def stop(self) -> None:
        """Look no more for the end of it."""
