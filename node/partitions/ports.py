"""The interfaces through which replicas report their events to other parts of the broker.

The methods do nothing until the broker has registered and replaces the instances by subclasses.
"""

from collections.abc import Iterable

from .hosted_partition import HostedPartition


class Followers:
    """The interface of FollowerService, which answers the fetches of followers."""

    def appended(self, partitions: Iterable[HostedPartition]) -> None:
        """Handle appends to led logs, once per turn of the event loop."""

    def offsets_moved(self, partition: HostedPartition) -> None:
        """Handle a higher high watermark or log start offset of a led partition."""

    def role_changed(self, partition: HostedPartition) -> None:
        """Handle a new leader or leader epoch of a replica, here or on another broker."""


class InSyncReplicas:
    """The interface of IsrProposer, which proposes ISR changes."""

    def isr_may_change(self, partition: HostedPartition) -> None:
        """Check the ISR of this partition soon."""

    def look_at_unsettled(self) -> None:
        """Check all unsettled partitions, because a broker was registered or fenced."""


class FailedLogs:
    """The interface of StorageFailures, which reports failed logs to the controller."""

    def report(self, topic_id: bytes, index: int) -> None:
        """Report a log that failed or could not be opened, so that another replica leads."""

    def withdraw(self, topic_id: bytes, index: int) -> None:
        """Withdraw the report of a log that could be opened after all.

        A later delivery of the report would stop the replica.
        """


class DiskReport:
    """The interface of DiskTrouble, which logs the write errors of the disk.

    words: the text of the current error, or "".
    """

    words = ""

    def note(self, error: BaseException, *, is_log_lost: bool = False) -> None:
        """Note a write error of the disk, if `error` or its cause is an OSError."""

    async def stop(self) -> None:
        """Stop checking whether the disk accepts writes again."""
