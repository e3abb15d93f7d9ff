"""The parameters with which another thread opens one partition's log."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from ..runtime.fault_point import FaultPoint
from ..runtime.steps import Steps
from .log_config import LogConfig
from .partition_log import PartitionLog


@dataclass(frozen=True, slots=True)
class LogOpening:
    """The parameters of PartitionLog.opening, collected by the thread that serves the logs.

    Another thread, which may wait for the disk, opens the log with them.
    """

    directory: Path
    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    cleaned_offset: int
    clean_shutdown: bool
    machine_restarted: bool
    now_ms: int
    fault_point: FaultPoint

    def open(self) -> Steps[PartitionLog]:
        """Open the log with these values (blocks; see PartitionLog.opening)."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return PartitionLog.opening(**options)

    def as_new(self) -> "LogOpening":
        """Return these parameters for a partition that has no files yet."""
        return replace(
            self,
            log_start_offset=0,
            recovery_point=0,
            high_watermark=0,
            cleaned_offset=0,
            clean_shutdown=False,
        )
