"""A PartitionLeader for tests, with a log that takes over each new high watermark immediately."""

from dataclasses import dataclass

from oncelog.replication.leader import PartitionLeader


@dataclass
class CommittedLog:
    high_watermark: int = 0


class Leading(PartitionLeader):
    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    def _next_high_watermark(self, now_ms: int) -> int | None:
        offset = super()._next_high_watermark(now_ms)
        if offset is not None:
            self._log.high_watermark = offset  # type: ignore[misc]
        return offset
