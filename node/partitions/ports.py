"""The ports of the replicas for their events.

Until the broker has registered they do nothing; then each is replaced by its subclass.
"""

from collections.abc import Iterable

from .hosted_partition import HostedPartition


class Followers:
    """The port of `follower_service.FollowerService`, which answers polls of other brokers."""

    def appended(self, partitions: Iterable[HostedPartition]) -> None:
        """React to appends to logs that we lead, once per turn of the event loop."""

    def offsets_moved(self, partition: HostedPartition) -> None:
        """React to a higher high watermark or log start offset of a partition that we lead."""

    def role_changed(self, partition: HostedPartition) -> None:
        """React to the begin or the end of a leadership."""


class InSyncReplicas:
    """The port of `isr_proposer.IsrProposer`, which proposes ISR changes."""

    def isr_may_change(self, partition: HostedPartition) -> None:
        """Check this partition soon."""

    def look_at_unsettled(self) -> None:
        """Check the unsettled partitions: a broker came or went."""


class FailedLogs:
    """The port of `storage_failures.StorageFailures`, which reports to the controller."""

    def report(self, topic_id: bytes, index: int) -> None:
        """Report a log that failed or could not be opened: another replica must lead."""

    def withdraw(self, topic_id: bytes, index: int) -> None:
        """Withdraw a report: the log could be opened, and a late report would stop it."""


class DiskReport:
    """The port of `storage_failures.DiskTrouble`, which logs. words: the current refusal."""

    words = ""

    def note(self, error: BaseException, *, is_log_lost: bool = False) -> None:
        """Note a refused write, by the disk if `error` or its cause is an OSError."""

    async def stop(self) -> None:
        """Stop checking for the end of the refusals."""
